"""Clients that lie: each attack does what it says, to those who lie and to nobody else."""

from dataclasses import fields, replace

import pytest
import torch

from data.batch import Batch, Window
from fed.adversaries import ATTACKS, Adversaries

RANDOM = torch.Generator().manual_seed(0)
SENT = {"actor": torch.randn(2000, generator=RANDOM), "critic": torch.randn(50, generator=RANDOM)}
STEP = {"actor": 0.1 * torch.randn(2000, generator=RANDOM), "critic": torch.ones(50)}
MOMENTS = {"actor/adam_m": torch.randn(2000, generator=RANDOM), "actor/adam_steps": torch.tensor(7.0)}
OWN = {name: SENT[name] + STEP[name] for name in SENT} | MOMENTS


def lie(attack: str, strength: float = 1.0, client: int = 2, round: int = 1, seed: int = 0, last: dict | None = None):
    return Adversaries(frozenset([2]), attack, strength, seed).lie(client, round, SENT, OWN, last or {})


# -- what they send ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("attack", "sign"), [("sign_flip", -1), ("scale", 1)])
@pytest.mark.parametrize("strength", [1.0, 0.5, 100.0])
def test_a_step_is_turned_round_or_scaled(attack, sign, strength):
    lies = lie(attack, strength)
    for name, step in STEP.items():
        torch.testing.assert_close(lies[name], SENT[name] + sign * strength * step, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_noise_is_measured_in_root_mean_squares_of_the_step(strength):
    lies = lie("noise", strength)
    noise = (lies["actor"] - OWN["actor"]).double()
    scale = strength * STEP["actor"].square().mean().sqrt().item()
    assert noise.std().item() == pytest.approx(scale, rel=5 / (2 * 2000) ** 0.5)  # within five standard errors
    assert abs(noise.mean().item()) < 5 * scale / 2000**0.5
    assert (lies["critic"] - OWN["critic"]).std().item() == pytest.approx(strength, rel=0.5)  # its steps are 1


def test_noise_is_drawn_anew_for_each_client_and_round_and_seed():
    first = lie("noise")["actor"]
    assert torch.equal(first, lie("noise")["actor"])
    for other in ({"client": 3}, {"round": 2}, {"seed": 1}):
        assert not torch.equal(first, lie("noise", **other)["actor"])


def test_a_message_that_is_not_finite_has_no_finite_number():
    lies = lie("non_finite")
    assert not any(lies[name].isfinite().any() for name in STEP)
    assert all(lies[name].shape == SENT[name].shape for name in STEP)


def test_a_stale_client_sends_what_it_had_come_to_before_and_at_first_what_it_was_sent():
    assert all(torch.equal(lie("stale")[name], SENT[name]) for name in STEP)
    before = {f"before/{name}": 5 * row for name, row in SENT.items()}
    assert all(torch.equal(lie("stale", last=before)[name], 5 * SENT[name]) for name in STEP)


def test_who_only_learns_from_flipped_rewards_says_what_it_has_come_to():
    lies = lie("flip_rewards", strength=9.0)
    assert all(torch.equal(lies[name], OWN[name]) for name in OWN)


@pytest.mark.parametrize("attack", ATTACKS)
def test_moments_and_what_the_client_really_has_are_left_alone(attack):
    before = {name: row.clone() for name, row in OWN.items()}
    lies = lie(attack, strength=3.0)
    assert lies.keys() == OWN.keys()
    assert all(torch.equal(lies[name], MOMENTS[name]) for name in MOMENTS)
    assert all(torch.equal(OWN[name], row) for name, row in before.items())


def test_every_attack_but_flipped_rewards_changes_the_message():
    for attack in ATTACKS:
        same = torch.equal(lie(attack, strength=2.0)["actor"], OWN["actor"])
        assert same is (attack == "flip_rewards")


# -- what they learn from ------------------------------------------------------------------------------------------
def batch(clients: int, seed: int, weighted: Batch | None = None) -> Batch:
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(clients, *shape, generator=random)

    window = Window(draw(5), draw(5, 3), draw(5), torch.full((clients, 5), 4))
    noise = torch.randn(2, clients, 5, 2, generator=random)
    return Batch(
        draw(5, 3), draw(5, 2), draw(5), draw(5, 3), draw(5), noise, returns=draw(5), weighted=weighted, window=window
    )


def assert_flipped(poisoned: Batch, honest: Batch, liars: list[int]) -> None:
    """The signs of everything that counts rewards, in these rows, and nothing else."""
    sign = torch.tensor([-1.0 if row in liars else 1.0 for row in range(len(honest.rewards))]).unsqueeze(1)
    assert torch.equal(poisoned.rewards, sign * honest.rewards)
    assert torch.equal(poisoned.returns, sign * honest.returns)
    assert torch.equal(poisoned.window.rewards, sign * honest.window.rewards)
    for name in ("observations", "terminals", "steps"):
        assert torch.equal(getattr(poisoned.window, name), getattr(honest.window, name))
    for field in fields(Batch):
        if field.name not in ("rewards", "returns", "window", "weighted"):
            assert getattr(poisoned, field.name) is getattr(honest, field.name)


def test_rewards_are_flipped_in_the_given_rows_only():
    honest = batch(4, seed=0, weighted=batch(4, seed=1))
    rewards = honest.rewards.clone()
    poisoned = Adversaries(frozenset([7]), "flip_rewards", 1.0, 0).poison(honest, [1, 3])
    assert_flipped(poisoned, honest, [1, 3])
    assert_flipped(poisoned.weighted, honest.weighted, [1, 3])
    assert torch.equal(honest.rewards, rewards)


def test_a_batch_without_window_returns_or_weighted_rows_can_be_poisoned_too():
    honest = replace(batch(3, seed=0), window=None, returns=None)
    poisoned = Adversaries(frozenset([7]), "flip_rewards", 1.0, 0).poison(honest, [0])
    assert torch.equal(poisoned.rewards[0], -honest.rewards[0])
    assert torch.equal(poisoned.rewards[1:], honest.rewards[1:])
    assert poisoned.window is None
    assert poisoned.returns is None
    assert poisoned.weighted is None


# -- who lies ------------------------------------------------------------------------------------------------------
def chosen(who: int | list[int], seed: int = 0, clients: int = 20) -> frozenset[int]:
    return Adversaries.chosen(who, "scale", 1.0, seed, clients).clients


def test_a_number_of_adversaries_is_chosen_by_the_seed():
    assert chosen(5) == chosen(5)
    assert len({chosen(5, seed) for seed in range(10)}) > 5
    for count in range(21):
        assert len(chosen(count)) == count
        assert chosen(count) <= set(range(20))
    assert chosen(50) == set(range(20))  # no more than there are


def test_everybody_may_be_chosen():
    assert set().union(*(chosen(5, seed) for seed in range(40))) == set(range(20))


def test_a_list_of_adversaries_is_taken_as_it_is():
    assert chosen([3, 0, 3]) == {0, 3}
    assert chosen([3, 0], seed=9) == {0, 3}


def test_the_rows_of_a_chunk_are_those_of_its_adversaries():
    adversaries = Adversaries(frozenset([3, 8]), "scale", 1.0, 0)
    assert adversaries.rows([8, 1, 3, 4]) == [0, 2]
    assert adversaries.rows([0, 1, 2]) == []
