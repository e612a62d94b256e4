from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

from data.errors import InputError
from rl.deployment import Policy
from rl.export import export_policy
from rl.networks import MLP
from rl.policies import Deterministic, TanhGaussian

OBSERVATIONS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32) * 3


ACTORS = {
    "gaussian": TanhGaussian(MLP((3, 8, 4))),
    "deterministic": Deterministic(MLP((3, 8, 2))),
    "layer norm": TanhGaussian(MLP((3, 8, 8, 4), layer_norm=True)),
}


@pytest.fixture(params=ACTORS)
def policy(request) -> Policy:
    actor = ACTORS[request.param]
    theta = torch.randn(2, actor.network.parameters, generator=torch.Generator().manual_seed(0))
    low, high = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 5.0])
    return Policy(actor, theta, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 3.0]), low, high)


def test_torchscript_gives_the_policys_actions(policy, tmp_path):
    export_policy(policy, tmp_path / "p.pt", client=1)
    actions = torch.jit.load(str(tmp_path / "p.pt"))(torch.from_numpy(OBSERVATIONS)).detach().numpy()
    np.testing.assert_allclose(actions, policy.act(np.stack([OBSERVATIONS] * 2))[1], atol=1e-5)


def test_onnx_gives_the_policys_actions_for_any_batch(policy, tmp_path):
    export_policy(policy, tmp_path / "p.onnx", client=1)
    assert [path.name for path in tmp_path.iterdir()] == ["p.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx")
    expected = policy.act(np.stack([OBSERVATIONS] * 2))[1]
    for batch in (1, 5):
        (actions,) = session.run(None, {"observation": OBSERVATIONS[:batch]})
        np.testing.assert_allclose(actions, expected[:batch], atol=1e-5)


def test_actions_span_the_environments_range(policy):
    steep = replace(policy, theta=policy.theta * 10)
    actions = steep.act(np.random.default_rng(0).normal(size=(2, 1000, 3)) * 1000)
    np.testing.assert_allclose(actions.min((0, 1)), [-2, 0], atol=1e-3)
    np.testing.assert_allclose(actions.max((0, 1)), [2, 5], atol=1e-3)


def test_another_format_is_a_sentence(policy, tmp_path):
    with pytest.raises(InputError, match=r"must end in \.pt"):
        export_policy(policy, tmp_path / "p.h5")
