"""d3rlpy's side of `scripts/bench.py learners`: runs in d3rlpy's own environment and imports nothing of this project.

Reads one JSON order a line from stdin and answers each with one JSON line:

    {"do": "train", "config": "BCConfig", "settings": {…}, "hidden": [256, 256], "data": "rows.npz", "seed": 0,
     "keep": [5000, 10000], "out": "policy.npz"}   trains to the last update in `keep`; stores the policy at each
    {"do": "time", …, "seconds": 1.0}   goes on training for that long: how many updates a second?
"""

import json
import sys
import time
from pathlib import Path

answers, sys.stdout = sys.stdout, sys.stderr  # d3rlpy prints its log: it must not land among the answers

import d3rlpy  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


def replay_buffer(path: str) -> d3rlpy.dataset.ReplayBuffer:
    """Episodes of flat columns; an episode that the clock ended carries one row more, for its last next state."""
    with np.load(path) as file:
        columns = {name: file[name] for name in file.files}
    ends = np.flatnonzero(columns["terminals"] | columns["timeouts"]) + 1
    episodes = [
        d3rlpy.dataset.Episode(
            observations=columns["observations"][first:end],
            actions=columns["actions"][first:end],
            rewards=columns["rewards"][first:end, None],
            terminated=bool(columns["terminals"][end - 1]),
        )
        for first, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return d3rlpy.dataset.create_infinite_replay_buffer(episodes)


def learner(order: dict, buffer: d3rlpy.dataset.ReplayBuffer, seed: int):
    """The algorithm of an order, with fresh networks."""
    d3rlpy.seed(seed)
    config = getattr(d3rlpy.algos, order["config"])
    encoder = d3rlpy.models.VectorEncoderFactory(order["hidden"])
    encoders = {field: encoder for field in config.__dataclass_fields__ if field.endswith("encoder_factory")}
    algo = config(**order["settings"], **encoders).create(device="cpu:0")
    info = buffer.dataset_info
    algo.create_impl(info.observation_signature.shape[0], info.action_size)
    return algo


def weights(policy: torch.nn.Module) -> np.ndarray:
    """W₁, b₁, W₂, b₂, … up to the mean action in one row, each W as [in, out]; a log-σ head is left out."""
    layers = [
        layer
        for name, layer in policy.named_modules()
        if isinstance(layer, torch.nn.Linear) and not name.endswith("_logstd")
    ]
    pieces = [piece.detach().flatten() for layer in layers for piece in (layer.weight.T, layer.bias)]
    return torch.cat(pieces).numpy()


def train(order: dict) -> dict:
    buffer = replay_buffer(order["data"])
    algo = learner(order, buffer, order["seed"])
    begun, rows = time.perf_counter(), []
    for update in range(1, max(order["keep"]) + 1):
        metrics = algo.update(buffer.sample_transition_batch(algo.batch_size))
        if update in order["keep"]:
            rows.append(weights(algo.impl.policy))
            print(order["out"], update, f"{time.perf_counter() - begun:.0f} s", metrics, flush=True)
    path = Path(order["out"])
    np.savez(path.with_suffix(".part.npz"), theta=np.stack(rows), made_with=json.dumps(order))
    path.with_suffix(".part.npz").replace(path)
    return {"seconds": time.perf_counter() - begun}


RUNNING: dict[str, tuple] = {}  # data and settings → the buffer and the algorithm that are being timed


def rate(order: dict) -> dict:
    key = json.dumps([order["data"], order["config"], order["settings"]])
    if key not in RUNNING:
        buffer = replay_buffer(order["data"])
        RUNNING[key] = buffer, learner(order, buffer, seed=0)
    buffer, algo = RUNNING[key]
    begun, updates = time.process_time(), 0  # of this process: what others take does not count
    while (seconds := time.process_time() - begun) < order["seconds"]:
        algo.update(buffer.sample_transition_batch(algo.batch_size))
        updates += 1
    return {"rate": updates / seconds}


if __name__ == "__main__":
    for line in sys.stdin:
        order = json.loads(line)
        answer = {"train": train, "time": rate}[order["do"]](order)
        print(json.dumps(answer), file=answers, flush=True)
