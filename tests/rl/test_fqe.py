"""Fitted Q evaluation against the linear system that a small chain's values solve."""

import numpy as np
import pytest
import torch

from data.batch import Batch
from rl.fqe import FQE
from rl.learner import Task
from rl.networks import MLP
from rl.policies import Deterministic

STATES, GAMMA, SLIP = 4, 0.9, 0.25
ACTIONS = (-0.5, 0.5)  # left, right


def transitions() -> list[tuple[int, float, float, int, bool, float]]:
    """(s, a, r, s', terminal, probability): right leads to a terminal, but slips and stays one time in four."""
    found = []
    for s in range(STATES):
        found.append((s, -0.5, -1.0 - s, max(s - 1, 0), False, 1.0))
        found.append((s, 0.5, 2.0 * s, min(s + 1, STATES - 1), s == STATES - 1, 1 - SLIP))
        found.append((s, 0.5, 2.0 * s, s, False, SLIP))
    return found


def exact_q(policy: float) -> dict[tuple[int, float], float]:
    """Q of the policy that always plays one action: v = r + γ P v, solved."""
    reward, move = np.zeros(STATES), np.zeros((STATES, STATES))
    for s, a, r, following, terminal, probability in transitions():
        if a == policy:
            reward[s] += probability * r
            move[s, following] += probability * (not terminal)
    v = np.linalg.solve(np.eye(STATES) - GAMMA * move, reward)
    q = dict.fromkeys([(s, a) for s in range(STATES) for a in ACTIONS], 0.0)
    for s, a, r, following, terminal, probability in transitions():
        q[s, a] += probability * (r + GAMMA * v[following] * (not terminal))
    return q


def chain_batch(clients: int) -> Batch:
    """Each transition as often as it is likely."""
    rows = [t[:5] for t in transitions() for _ in range(round(4 * t[5]))]
    s, a, r, following, terminal = (np.array(column) for column in zip(*rows, strict=True))
    one_hot = np.eye(STATES, dtype=np.float32)

    def stacked(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, np.float32)).expand(clients, *values.shape)

    fields = [stacked(x) for x in (one_hot[s], a[:, None], r, one_hot[following], terminal)]
    return Batch(*fields, noise=torch.empty(0))


def constant_policies(actions: list[float]) -> tuple[Deterministic, torch.Tensor]:
    """A linear actor for each client, with weights 0 and bias atanh(action)."""
    network = MLP((STATES, 1))
    theta = torch.zeros(len(actions), network.parameters)
    theta[:, -1] = torch.atanh(torch.tensor(actions))
    return Deterministic(network), theta


@pytest.fixture(scope="module")
def fitted() -> FQE:
    """Two clients, each with a policy of its own."""
    actor, theta = constant_policies(list(ACTIONS))
    common = {"hidden": [32], "layer_norm": False, "schedule": "constant", "clip": None, "device": "cpu"}
    learner = FQE(Task(STATES, 1, 6.0), 2, actor=actor, gamma=GAMMA, tau=0.3, lr=5e-3, **common)
    learner.broadcast(learner.initial(torch.Generator().manual_seed(0)))
    learner.load({"actor": theta})
    batch = chain_batch(2)
    for _ in range(1000):
        learner.update(batch)
    return learner


@pytest.mark.parametrize(("client", "policy"), list(enumerate(ACTIONS)))
def test_q_is_that_of_the_linear_system(fitted, client, policy):
    expected = exact_q(policy)
    states = torch.eye(STATES).expand(2, STATES, STATES)
    for a in ACTIONS:
        q = fitted.q(fitted.params["critic"], states, torch.full((2, STATES, 1), a))[client]
        for s in range(STATES):
            assert q[s].item() == pytest.approx(expected[s, a], abs=0.1), (s, a)


@pytest.mark.parametrize(("client", "policy"), list(enumerate(ACTIONS)))
def test_the_value_is_that_of_the_policys_action(fitted, client, policy):
    expected = exact_q(policy)
    values = fitted.value(fitted.params["critic"], torch.eye(STATES).expand(2, STATES, STATES))[client]
    assert values.tolist() == pytest.approx([expected[s, policy] for s in range(STATES)], abs=0.1)


def test_the_policy_stays_as_it_is(fitted):
    assert torch.equal(fitted.params["actor"].detach(), constant_policies(list(ACTIONS))[1])
