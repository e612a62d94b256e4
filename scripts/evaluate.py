"""Play a run's policy again: more episodes, a picture or a video, and the policy as a file.

python scripts/evaluate.py outputs/RUN --episodes 100 --picture policy.png --export policy.onnx
python scripts/evaluate.py outputs/RUN --offline    (what the logs alone say of it; no simulator is needed)
"""

import argparse
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from data.command_line import Parser, guarded
from data.dataset import Environment
from data.errors import InputError
from fed.offline import FQESettings, LoggedRun, played_values
from fed.scoring import mean_of_known, scores_of
from fed.trained import TrainedRun
from metrics.ratios import ratio_estimates
from rl.envs.episode import STILLS, VIDEO_FRAMES, Episode, evenly, play, save_picture, save_video
from rl.envs.evaluation import Evaluation
from rl.envs.racing.laps import save_laps
from rl.export import FORMATS, export_policy


def main() -> None:
    options = arguments()
    for path, endings in ((options.export, FORMATS), (options.picture, (".png",)), (options.video, (".gif",))):
        if path and path.suffix not in endings:
            raise InputError(f"'{path}' must end in {' or '.join(endings)}.")
    run = TrainedRun.load(options.run)
    row = 0 if options.client is None else run.row_of(options.client)
    chosen = run.environment(options.environment) if run.environments else None
    if options.export:
        export_policy(run.policy, options.export, row)
        print(f"policy of {run.name(row)}, round {run.round}, in {options.export}")
    if options.offline:
        show_offline(run, options)
        if not run.environments:
            return
    evaluation = run.evaluate(options.episodes, options.seed)
    show(run, evaluation)
    title = f"{options.run.name}, {run.name(row)}, round {run.round}"
    if options.picture and all(environment.id.startswith("FedRacing/") for environment in run.environments):
        drawn = run.environments if options.environment is None else [chosen]
        save_laps(run.policy, drawn, options.seed, row, options.picture, title)
        print(f"laps in {options.picture}")
    elif options.picture:
        episode = drawn_episode(run, chosen, row, options.seed, STILLS)
        returns = evaluation.returns[row, run.environments.index(chosen)]
        save_picture(episode, returns, options.picture, f"{title}, {chosen.name}")
        print(f"picture in {options.picture}" + f" (no frames: {episode.no_frames_because})" * (not episode.frames))
    if options.video:
        save_video(drawn_episode(run, chosen, row, options.seed, VIDEO_FRAMES), options.video)
        print(f"video in {options.video}")


def drawn_episode(run: TrainedRun, environment: Environment, row: int, seed: int, frames: int) -> Episode:
    """Played twice: once to learn its length, once to draw so many of its steps."""
    same = (run.policy, environment, seed, run.config.eval.max_steps, row)
    return play(*same, draw=evenly(len(play(*same).rewards), frames))


def show(run: TrainedRun, evaluation: Evaluation) -> None:
    """A row for each environment of the server's policy, or for each client's own policy."""
    metrics = [name for name in evaluation.metrics if name not in ("progress", "laps")]  # the return says as much
    titles = {"lap_completed": "laps", "lap_time": "lap, s", "crashed": "crash"}
    names = ("score", "return", "±", "steps", *(titles.get(name, name) for name in metrics))
    columns = (Column(name, justify="right") for name in names)
    table = Table(Column("", min_width=18, max_width=30), *columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title = f"{evaluation.returns.shape[2]} episodes in each of {len(run.environments)} environments"

    def add(name: str, policies: slice, environments: slice | list[int], style: str | None = None) -> None:
        score = scores_of(evaluation.returns, run.environments)[policies, environments].mean()
        returns = evaluation.returns[policies, environments]
        cells = ["–" if np.isnan(score) else f"{score:.1f}", f"{returns.mean():.1f}", f"{returns.std():.1f}"]
        cells.append(f"{evaluation.lengths[policies, environments].mean():.0f}")
        for metric in metrics:
            value = mean_of_known(evaluation.metrics[metric][policies, environments])
            cells.append("–" if value is None else f"{value:.1f}" if metric == "lap_time" else f"{value:.0%}")
        table.add_row(name, *cells, style=style)

    everyone = slice(None)
    seen, held_out = ([v for v, e in enumerate(run.environments) if e.held_out == kind] for kind in (False, True))
    if run.clients is None:
        for v, environment in enumerate(run.environments):
            add(environment.name + " (held out)" * environment.held_out, everyone, slice(v, v + 1))
    else:
        for k in range(len(run.clients)):
            add(run.name(k), slice(k, k + 1), seen)
    if evaluation.returns[..., 0].size > 1:
        add("mean" + ", not held out" * bool(held_out), everyone, seen, style="bold")
    if held_out and run.clients is not None:
        add("mean, held out", everyone, held_out, style="bold")
    if len(run.environments) == 1 and (references := run.environments[0].references):
        table.caption = f"score 0 = {references.low:.1f}, 100 = {references.high:.1f}: {references.label}"
    Console().print(table)


def show_offline(run: TrainedRun, options: argparse.Namespace) -> None:
    """V from initial states, and (1 − γ)V: fitted on the logs, played, and by the learner's ratios if it has any."""
    gamma = run.config.algo.get("gamma", 0.99) if options.gamma is None else options.gamma
    settings = FQESettings(gamma, options.updates, options.batch_size, options.lr)
    logged = LoggedRun.load(options.run, run)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fitting Q", total=1.0)
        fitted, earlier = logged.fitted_values(settings, lambda done: bar.update(task, completed=done))
    played, unseen = played_values(run, gamma, options.episodes, options.seed) if run.environments else (None, 0.0)
    ratios, rewards = logged.density_ratios(), logged.experiment.dataset.rewards
    lines = logged.lines()
    counts = np.array([len(line.starts) for line in lines])
    columns = {"V\nfitted": [fitted[line.starts].mean() for line in lines]}
    if played is not None:
        columns["V\nplayed"] = [played[line.policy, line.environment].mean() for line in lines]
    columns |= {name.replace("V", "(1−γ)V"): np.multiply(values, 1 - gamma) for name, values in columns.items()}
    if ratios is not None:
        by_ratio = [ratio_estimates(ratios[line.rows], rewards[line.rows]) for line in lines]
        columns["(1−γ)V\nratios"], columns["(1−γ)V\nself-norm."] = zip(*by_ratio, strict=True)
    table = Table(
        Column("", min_width=12, max_width=24),
        Column("starts", justify="right"),
        *(Column(name, justify="right") for name in columns),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"discounted value, γ = {gamma:g}, {settings.updates:,} updates of Q",
    )
    for i, line in enumerate(lines):
        table.add_row(line.name, f"{counts[i]:,}", *(f"{values[i]:.4g}" for values in columns.values()))
    if len(lines) > 1:
        means = (f"{np.average(values, weights=counts):.4g}" for values in columns.values())
        table.add_row("mean over starts", f"{counts.sum():,}", *means, style="bold")
    Console().print(table)
    starts = np.concatenate([line.starts for line in lines])
    change = fitted[starts].mean() - earlier[starts].mean()
    print(f"In the last fifth of its updates the fitted value moved by {change:.4g}.")
    if played is not None:
        error = played.std(axis=2).mean() / np.sqrt(played.shape[2])
        print(f"The played values have a standard error of {error:.4g}, from {played.shape[2]} episodes each.")
    if unseen > 0.01:
        print(f"Some episodes were cut by a limit: what would have followed weighs up to {unseen:.0%} of a value.")


def arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--episodes", type=int, default=20, help="a policy and environment (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20_000, help="of the initial states (default: %(default)s)")
    parser.add_argument("--client", type=int, help="whose policy to draw and export, where actors are personal")
    parser.add_argument("--environment", metavar="NAME", help="which to film or draw, where there are several")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="stills and returns; in racing, the laps")
    parser.add_argument("--video", type=Path, metavar="FILE.gif", help="the first episode")
    parser.add_argument("--export", type=Path, metavar="FILE", help="the policy as TorchScript (.pt) or ONNX (.onnx)")
    offline = parser.add_argument_group("off-policy evaluation")
    offline.add_argument("--offline", action="store_true", help="estimate the policy's value from the run's own data")
    offline.add_argument("--updates", type=int, default=10_000, help="of Q by each client (default: %(default)s)")
    offline.add_argument("--batch-size", type=int, default=256, help="rows of an update (default: %(default)s)")
    offline.add_argument("--lr", type=float, default=3e-4, help="learning rate of Q (default: %(default)s)")
    offline.add_argument("--gamma", type=float, help="discount (default: the learner's, or 0.99)")
    return parser.parse_args()


if __name__ == "__main__":
    guarded(main)
