"""The command line of run_fed.py and run_centralized.py."""

import argparse
import re
import signal
import sys
from datetime import datetime
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from data.command_line import Parser
from data.errors import InputError, nearest
from fed.config import GROUPS, compose, expand, options
from fed.progress import RoundProgress
from fed.server import federate, prepare

FLAGS = {
    "algo": "learner",
    "fed": "federation rule",
    "data": "dataset: a name, the path of a file, or several as a=PATH,b=PATH",
    "split": "how rows are dealt to clients",
    "engine": "where clients train",
}
EXAMPLES = """
every other setting is a Hydra override:
  {script} --algo bc split.clients=4 updates_per_round=200
  {script} --data logs/hopper.hdf5 --split quantile --rounds 5 data.env=Hopper-v5
  {script} -m seed=0,1,2 algo=bc,sac          (a sweep: one run for each combination)
  {script} --out outputs/mine --resume        (continue it, or start it)
All settings with their defaults: {script} --show, or the files in configs/.
"""


def main(root: str, script: str, description: str) -> None:
    """Compose the configuration, run it (or each job of a sweep), and say where the results are."""
    arguments = _parser(script, description).parse_intermixed_args()
    if arguments.resume and not arguments.multirun and not arguments.config and arguments.out:
        own = Path(arguments.out) / "config.yaml"
        arguments.config = str(own) if own.is_file() else None  # what is not typed stays as the run has it
    overrides = _as_overrides(arguments)
    if arguments.show:
        print(OmegaConf.to_yaml(compose(root, overrides, arguments.config)), end="")
    elif arguments.multirun:
        _sweep(root, overrides, arguments)
    else:
        config = compose(root, overrides, arguments.config)
        config.out = config.out or default_out(config)
        run(config, arguments.resume)


def run(config: DictConfig, resume: bool = False, parent: Path | None = None) -> dict:
    """One run (of a sweep, if it has a parent folder), with a progress display; returns its summary."""
    console = Console(stderr=True)
    experiment, folder = prepare(config, resume)
    for note in experiment.dataset.notes:
        console.print(f"[yellow]note:[/] {note}", highlight=False, soft_wrap=True)
    if folder.rounds_done() == experiment.config.rounds:
        console.print(f"'{folder.path}' is finished; its results again:", highlight=False, soft_wrap=True)
    again = f"Finished rounds are saved: the same command with --out {parent or folder.path} --resume goes on."
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with RoundProgress(experiment, folder.path, console) as progress:
            summary = federate(experiment, folder, progress.observe)
    except KeyboardInterrupt:
        console.print(again, soft_wrap=True)
        raise
    except OSError as error:
        raise InputError(f"'{folder.path}' cannot be written ({error.strerror}). {again}") from error
    progress.close(summary)
    return summary


def _interrupt(*_: object) -> None:
    """SIGTERM is what Ctrl-C is."""
    raise KeyboardInterrupt


def default_out(config: DictConfig) -> str:
    """outputs/fed_<algo>_<fed>_<data>_<time>, or central_… for the oracle."""
    data, path = config.choices.data, config.data.path
    if data == "file":
        data = Path(path).stem if isinstance(path, str) else "+".join(path)
    words = (
        ["central", config.choices.algo, data]
        if config.pooled
        else ["fed", config.choices.algo, config.choices.fed, data]
    )
    return f"outputs/{'_'.join(words)}_{datetime.now():%Y%m%d_%H%M%S}"


def _sweep(root: str, overrides: list[str], arguments: argparse.Namespace) -> None:
    """Every combination, one after another; a job that cannot run is said at the end and does not stop the others."""
    swept = [override.split("=", 1)[0] for override in overrides if len(expand([override])) > 1]
    jobs = {}
    for job in expand(overrides):  # all composed, and so checked, before any runs
        name = ",".join(item for item in job if item.split("=", 1)[0] in swept) or "run"
        jobs[name] = compose(root, job, arguments.config)
    if len(jobs) < len(expand(overrides)) or not jobs:
        raise InputError("The sweep names no values, or the same ones twice; give each key=a,b different values.")
    parent = Path(next(iter(jobs.values())).out or f"outputs/multirun_{datetime.now():%Y%m%d_%H%M%S}")
    faults = {}
    for number, (name, config) in enumerate(jobs.items(), 1):
        config.out = str(parent / re.sub(r"[^\w.,=+-]+", "-", name))
        print(f"Job {number} of {len(jobs)}: {name}", file=sys.stderr)
        try:
            run(config, arguments.resume, parent)
        except InputError as fault:
            faults[name] = fault
    if faults:
        raise InputError("\n".join(f"Job {name} did not run: {fault}" for name, fault in faults.items()))


def _parser(script: str, description: str) -> Parser:
    choices = "\n".join(f"  {group:7} {', '.join(options(group))}" for group in GROUPS)
    epilog = f"names to choose from:\n{choices}\n{EXAMPLES.format(script=script)}"
    parser = Parser(
        prog=script,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for flag, meaning in FLAGS.items():
        parser.add_argument(f"--{flag}", metavar="NAME", help=meaning)
    parser.add_argument("--config", metavar="FILE", help="settings from a YAML file, e.g. another run's config.yaml")
    parser.add_argument("--seed", metavar="N", help="seed of everything random (default 0)")
    parser.add_argument("--rounds", metavar="N", help="rounds to run")
    parser.add_argument("--out", metavar="FOLDER", help="the run's folder (with -m: the parent of the runs' folders)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, or start it")
    parser.add_argument("-m", "--multirun", action="store_true", help="a sweep: run every combination of key=a,b")
    parser.add_argument("--show", action="store_true", help="print the configuration and stop")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any setting, in Hydra's grammar")
    return parser


def _as_overrides(arguments: argparse.Namespace) -> list[str]:
    """Flags are sugar for overrides; what is typed as key=value comes last and wins."""
    sugar = []
    for flag in (*FLAGS, "seed", "rounds", "out"):
        value = getattr(arguments, flag)
        if value is None:
            continue
        if flag == "data" and not set(value.split(",")) <= set(options("data")):
            sugar += _data_path(value)
        elif flag == "out":
            sugar.append(f"out={_quoted(value)}")
        else:
            sugar.append(f"{flag}={value}")
    if arguments.resume and not arguments.out:
        raise InputError("--resume needs --out FOLDER to say which run to continue.")
    return sugar + arguments.overrides


def _data_path(value: str) -> list[str]:
    """`--data` is a config's name, several named sources as `a=PATH,b=PATH`, or anything `data.load` understands."""
    if re.match(r"\w+=", value):
        sources = ",".join(f"{name}:{_quoted(path)}" for name, _, path in (s.partition("=") for s in value.split(",")))
        return ["data=file", f"data.path={{{sources}}}"]
    looks_like_data = "/" in value or "." in value or Path(value).exists() or re.search(r"\d|[-_]", value)
    if not looks_like_data:
        raise InputError(f"There is no data '{value}'; {nearest(value, options('data'))} A file's path works too.")
    return ["data=file", f"data.path={_quoted(value)}"]


def _quoted(text: str) -> str:
    """As one string in Hydra's grammar, whatever characters a path holds."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
