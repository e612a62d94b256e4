"""What rules change in the clients' own training, on problems whose answer is known."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from data.batch import Batch
from data.errors import InputError
from fed.aggregators.mean import Mean
from fed.local_rules.base import LocalRule
from fed.local_rules.proximal import Proximal
from fed.local_rules.scaffold import Scaffold
from fed.update import Update
from rl.learner import Learner, Task

CURVATURE = torch.tensor([1.0, 10.0, 3.0])  # of three clients' bowls
CENTRES = torch.tensor([[0.0, 1.0], [2.0, -1.0], [4.0, 3.0]])
OPTIMUM = (CURVATURE.unsqueeze(1) * CENTRES).sum(0) / CURVATURE.sum()  # of their mean


class Bowls(Learner):
    """Client k minimises c_k/2 ‖θ − centre_k‖²: its rows say which bowl it has."""

    def build(self, task: Task) -> None:
        pass

    def initial(self, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"actor": torch.zeros(2)}

    def objectives(self, batch: Batch) -> list:
        return [self.descend]

    def descend(self, batch: Batch) -> tuple[dict, dict]:
        k = batch.rewards[:, 0].long()
        distance = (self.params["actor"] - CENTRES[k]).square().sum(1)
        return {"actor": CURVATURE[k] / 2 * distance}, {}


def bowls(lr: float) -> Bowls:
    common = {"hidden": [1], "layer_norm": False, "schedule": "constant", "clip": None, "device": "cpu"}
    return Bowls(Task(1, 1, 1.0), 3, lr={"actor": lr}, **common)


def batches(count: int) -> Iterator[Batch]:
    nothing = torch.zeros(3, 1, 1)
    which = torch.arange(3.0).unsqueeze(1)
    yield from [Batch(nothing, nothing, which, nothing, torch.zeros(3, 1), torch.zeros(0, 3, 1, 1))] * count


def federate(
    rule: LocalRule, rounds: int, steps: int, lr: float = 0.05, sizes: tuple[int, ...] = (1, 1, 1)
) -> tuple[torch.Tensor, list[dict]]:
    """The server's point after some rounds (the step shrinks with them), and what the clients have kept."""
    state = {"actor": torch.zeros(2)}
    state |= rule.server_tensors(state)
    own: list[dict] = [{}, {}, {}]
    for round in range(rounds):
        cohort = bowls(lr / (1 + round / 20))
        cohort.broadcast({"actor": state["actor"]})
        local = rule.begin(cohort, state, own, batches)
        cohort.correct = local.correct
        for batch in batches(steps):
            cohort.update(batch)
        extras, kept = local.finish()
        own = [{name: rows[k].clone() for name, rows in kept.items()} for k in range(3)]
        mean, rows = Mean("rows"), torch.tensor(sizes, dtype=torch.float64)
        mean.accumulate(Update([0, 1, 2], {"actor": cohort.params["actor"].detach()}, list(sizes), {}, {}, {}))
        new = mean.finalise(state).state
        changes = {name: rows @ change.double() for name, change in extras.items()}
        state = new | rule.receive(state, changes, sum(sizes))
    return state["actor"], own


def test_scaffold_reaches_the_optimum_of_different_bowls_where_fedavg_does_not():
    """With Adam at the clients: the corrected gradients of all clients vanish at the optimum, the plain ones do not."""
    scaffold, own = federate(Scaffold(batches=1), rounds=400, steps=10)
    plain, _ = federate(LocalRule(), rounds=400, steps=10)
    assert (scaffold - OPTIMUM).norm() < 0.02
    assert (plain - OPTIMUM).norm() > 0.2
    gradients = CURVATURE.unsqueeze(1) * (OPTIMUM - CENTRES)
    controls = torch.stack([kept["control/actor"] for kept in own])
    torch.testing.assert_close(controls, gradients, atol=0.5, rtol=0.05)


def test_scaffold_reaches_the_optimum_of_clients_of_unequal_size():
    sizes = (1, 1, 8)
    weights = CURVATURE * torch.tensor(sizes)
    optimum = (weights.unsqueeze(1) * CENTRES).sum(0) / weights.sum()
    assert (federate(Scaffold(batches=1), rounds=400, steps=10, sizes=sizes)[0] - optimum).norm() < 0.02


def test_fedprox_holds_clients_near_the_server_and_without_mu_is_fedavg_bit_for_bit():
    plain, _ = federate(LocalRule(), rounds=5, steps=20)
    assert torch.equal(federate(Proximal(0.0), rounds=5, steps=20)[0], plain)
    assert torch.equal(federate(Proximal({"actor": 0.0}), rounds=5, steps=20)[0], plain)
    assert (
        federate(Proximal(1e3), rounds=1, steps=20)[0].norm()
        < 0.5 * federate(LocalRule(), rounds=1, steps=20)[0].norm()
    )


def test_the_proximal_term_is_the_gradient_of_half_mu_times_the_squared_distance():
    cohort = bowls(0.1)
    cohort.broadcast({"actor": torch.tensor([1.0, 2.0])})
    local = Proximal(0.3).begin(cohort, {"actor": torch.tensor([1.0, 2.0])}, [{}, {}, {}], batches)
    with torch.no_grad():
        cohort.params["actor"] += torch.tensor([[1.0, 0.0], [0.0, -2.0], [3.0, 3.0]])
    theta = cohort.params["actor"].detach().clone().requires_grad_()
    term = 0.3 / 2 * (theta - torch.tensor([1.0, 2.0])).square().sum()
    (expected,) = torch.autograd.grad(term, theta)
    gradient = torch.zeros(3, 2)
    local.correct("actor", gradient)
    torch.testing.assert_close(gradient, expected)


def test_mu_for_a_module_that_there_is_not_is_a_sentence():
    with pytest.raises(InputError, match="the shared modules are actor"):
        Proximal({"critic": 1.0}).check(["actor"])
    with pytest.raises(InputError, match="at least 0"):
        Proximal(-1.0)


def test_a_client_that_was_not_there_keeps_its_control_variate_and_its_share_in_the_servers():
    """c stays the mean of all clients' c_i, whoever takes part."""
    rule, state = Scaffold(batches=1), {"actor": torch.zeros(2), "control/actor": torch.zeros(2)}
    controls = torch.zeros(3, 2)
    for round, present in enumerate([[0, 1, 2], [1], [0, 2], [2]]):
        cohort = bowls(0.1)
        state["actor"] = torch.full((2,), float(round))
        cohort.broadcast({"actor": state["actor"]})
        own = [{"control/actor": controls[k].clone()} for k in range(3)]
        extras, kept = rule.begin(cohort, state, own, batches).finish()
        controls[present] = kept["control/actor"][present]
        state |= rule.receive(state, {"control/actor": extras["control/actor"][present].sum(0)}, 3)
        np.testing.assert_allclose(state["control/actor"], controls.mean(0), atol=1e-5)
