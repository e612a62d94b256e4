"""Play a run's policy again: more episodes, a picture or a video, and the policy as a file.

python scripts/evaluate.py outputs/RUN --episodes 100 --picture policy.png --export policy.onnx
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from data.command_line import Parser, guarded
from data.errors import InputError
from fed.trained import TrainedRun
from rl.envs.episode import STILLS, VIDEO_FRAMES, evenly, play, save_picture, save_video
from rl.export import FORMATS, export_policy


def main() -> None:
    options = arguments()
    for path, endings in ((options.export, FORMATS), (options.picture, (".png",)), (options.video, (".gif",))):
        if path and path.suffix not in endings:
            raise InputError(f"'{path}' must end in {' or '.join(endings)}.")
    run = TrainedRun.load(options.run)
    row = 0 if options.client is None else run.row_of(options.client)
    if options.export:
        export_policy(run.policy, options.export, row)
        print(f"policy of {run.name(row)}, round {run.round}, in {options.export}")
    evaluation = run.evaluate(options.episodes, options.seed)
    show(run, evaluation.returns, evaluation.lengths)
    if options.picture or options.video:
        same = (run.policy, run.env_id, options.seed, run.config.eval.max_steps, row)
        frames = VIDEO_FRAMES if options.video else STILLS
        episode = play(*same, draw=evenly(len(play(*same).rewards), frames))
        title = f"{options.run.name}, {run.name(row)}, round {run.round}, {run.env_id}"
        if options.picture:
            save_picture(episode, evaluation.returns[row], options.picture, title)
            print(f"picture in {options.picture}" + f" (no frames: {episode.no_frames_because})" * (not episode.frames))
        if options.video:
            save_video(episode, options.video)
            print(f"video in {options.video}")


def show(run: TrainedRun, returns: np.ndarray, lengths: np.ndarray) -> None:
    """A row for each policy, and their mean where there are several."""
    title = f"{run.env_id}, {returns.shape[1]} episodes each"
    table = Table("policy", "score", "return", "± over episodes", "length", title=title)

    def add(name: str, returns: np.ndarray, lengths: np.ndarray, style: str | None = None) -> None:
        scores = run.scores(returns)
        score = "–" if scores is None else f"{scores.mean():.1f}"
        cells = (f"{returns.mean():.1f}", f"{returns.std():.1f}", f"{lengths.mean():.0f}")
        table.add_row(name, score, *cells, style=style)

    for k in range(len(returns)):
        add(run.name(k), returns[k], lengths[k])
    if len(returns) > 1:
        add("mean", returns, lengths, style="bold")
    if run.references:
        table.caption = f"score 0 = {run.references.low:.1f}, 100 = {run.references.high:.1f}: {run.references.label}"
    Console().print(table)


def arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--episodes", type=int, default=100, help="for each policy (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20_000, help="of the initial states (default: %(default)s)")
    parser.add_argument("--client", type=int, help="whose policy to draw and export, where actors are personal")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="stills, rewards and returns")
    parser.add_argument("--video", type=Path, metavar="FILE.gif", help="the first episode")
    parser.add_argument("--export", type=Path, metavar="FILE", help="the policy as TorchScript (.pt) or ONNX (.onnx)")
    return parser.parse_args()


if __name__ == "__main__":
    guarded(main)
