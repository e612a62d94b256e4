import torch

from rl.plain_sac import PlainSAC
from tests.rl.learners import ACTIONS, OBSERVATIONS, make, random_batch, select
from tests.rl.test_networks import plain_copy


def plain_from(learner, k: int) -> PlainSAC:
    """The independent single-client SAC, started from client k's parameters."""
    plain = PlainSAC(OBSERVATIONS, ACTIONS, [16, 16])
    plain.actor.load_state_dict(plain_copy(learner.actor.network, learner.params["actor"][k].detach()).state_dict())
    for i, row in enumerate(learner.params["critic"][k].detach().chunk(2)):
        plain.critics[i].load_state_dict(plain_copy(learner.critic, row).state_dict())
    plain.targets.load_state_dict(plain.critics.state_dict())
    return plain


def as_row(network) -> torch.Tensor:
    return torch.cat([p.detach().T.flatten() if p.ndim == 2 else p.detach() for p in network.parameters()])


def test_a_stacked_cohort_equals_separate_runs_of_a_plain_loop():
    cohort = make("sac", 3)
    plains = [plain_from(cohort, k) for k in range(3)]
    for step in range(20):
        batch = random_batch(cohort, 3, 32, seed=step)
        cohort.update(batch)
        for k, plain in enumerate(plains):
            own = select(batch, [k])
            columns = (own.observations, own.actions, own.rewards, own.next_observations, own.terminals)
            plain.update(*(column[0] for column in columns), own.noise[:, 0])
    for k, plain in enumerate(plains):
        torch.testing.assert_close(cohort.params["actor"][k], as_row(plain.actor), atol=2e-5, rtol=1e-3)
        critics = torch.cat([as_row(critic) for critic in plain.critics])
        targets = torch.cat([as_row(target) for target in plain.targets])
        torch.testing.assert_close(cohort.params["critic"][k], critics, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.targets["critic_target"][k], targets, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(cohort.params["temperature"][k], plain.log_alpha.detach(), atol=1e-5, rtol=1e-4)


def test_a_terminal_does_not_bootstrap_and_anything_else_does():
    learner = make("sac", 1)
    batch = random_batch(learner, 1, 4)
    with torch.no_grad():
        q = learner.q(learner.params["critic"], batch.observations, batch.actions)
        batch.terminals.fill_(1.0)
        ended, _ = learner.evaluate_policy(batch)
        expected = (q - batch.rewards.unsqueeze(1)).square().mean(2).sum(1)
        torch.testing.assert_close(ended["critic"], expected)
        batch.terminals.zero_()
        going_on, _ = learner.evaluate_policy(batch)
    assert not torch.isclose(going_on["critic"], expected)


def test_the_bound_on_q_is_what_the_best_reward_could_earn_for_ever():
    assert make("sac", 1, gamma=0.9).bounds["q_abs"] == 1.0 / (1 - 0.9)


def test_sac_solves_a_bandit_whose_best_action_is_known():
    """Reward −(a − 0.5)², episodes of one step: the policy's mode must go to 0.5."""
    learner = make("sac", 1, actor_lr=3e-3, critic_lr=3e-3, temperature_lr=3e-3)
    for step in range(2500):
        batch = random_batch(learner, 1, 64, seed=step)
        batch.rewards.copy_(-(batch.actions - 0.5).square().sum(-1) * 4)
        batch.terminals.fill_(1.0)
        learner.update(batch)
    mode = learner.actor.mode(learner.params["actor"], torch.randn(1, 100, OBSERVATIONS))
    assert (mode.mean((0, 1)) - 0.5).abs().max() < 0.1


def test_more_critics_make_the_target_more_careful():
    """SAC-N: the minimum over all critics, so that one more can only lower the target."""
    few, many = make("sac", 1, critics=2), make("sac", 1, critics=6)
    many.targets["critic_target"][:, : few.critic.parameters] = few.targets["critic_target"]
    batch = random_batch(few, 1, 32)
    lowest = [
        learner.q(learner.targets["critic_target"], batch.observations, batch.actions).amin(1)
        for learner in (few, many)
    ]
    assert (lowest[1] <= lowest[0]).all()
    assert (lowest[1] < lowest[0]).any()
