"""Make and look at datasets: `python scripts/make_dataset.py racing --track Oval Esses --car wet --level mixed`."""

import argparse
from itertools import product
from pathlib import Path

from data.command_line import Parser, guarded
from data.describe import describe
from data.loaders import load
from data.pendulum import DATASET_ID, EPISODES, ensure_pendulum
from data.split_config import split_named
from fed.config import compose
from fed.config import options as data_configs
from rl.envs.racing.cars import CARS
from rl.envs.racing.levels import LEVELS
from rl.envs.racing.logs import TRANSITIONS, ensure_racing, racing_id
from rl.envs.racing.named import TRACKS
from rl.envs.racing.race import OBSERVATIONS


def pendulum(options: argparse.Namespace) -> None:
    print(ensure_pendulum(options.id, options.episodes, options.seed))


def racing(options: argparse.Namespace) -> None:
    for track, car in product(options.track, options.car):
        dataset_id = racing_id(track, car, options.level, options.observation, options.seed)
        print(ensure_racing(dataset_id, options.transitions))


def tracks(options: argparse.Namespace) -> None:
    from rl.envs.racing.pictures import draw_grip, draw_tracks

    draw_tracks(options.out / "tracks.png")
    draw_grip(options.out / "grip.png")
    print(f"The pictures are {options.out / 'tracks.png'} and {options.out / 'grip.png'}.")


def describe_split(options: argparse.Namespace) -> None:
    clients = [] if options.clients is None else [f"clients={options.clients}"]
    named = options.dataset in data_configs("data")
    config = compose("train", [f"data={options.dataset}"]) if named else None
    options.split = options.split or (config.choices.split if config else "dirichlet")
    split = split_named(options.split, [*clients, *options.overrides])
    dataset = load(config.data.path if config else options.dataset)
    shards = split(dataset, seed=options.seed)
    name = options.dataset if named else dataset.name
    picture = options.out or Path("outputs") / f"split_{Path(name).stem}_{options.split}.png"
    describe(dataset, shards, picture, title=f"{name}, {options.split} split")
    print(f"The picture is in {picture}.")


def parser() -> Parser:
    top = Parser(description=__doc__)
    commands = top.add_subparsers(title="commands", required=True, metavar="command")

    command = commands.add_parser("pendulum", help="log Pendulum-v1 with drivers of four skills, as Minari data")
    command.add_argument("--id", default=DATASET_ID, help="Minari id to write (default: %(default)s)")
    command.add_argument("--episodes", type=int, default=EPISODES, help="200 rows each (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="the same seed makes the same logs")
    command.set_defaults(run=pendulum)

    command = commands.add_parser("racing", help="log racing drivers, as Minari data: one dataset a track and car")
    command.add_argument("--track", nargs="+", default=list(TRACKS), metavar="NAME", help=f"of {', '.join(TRACKS)}")
    command.add_argument("--car", nargs="+", default=["nominal"], metavar="NAME", help=f"of {', '.join(CARS)}")
    command.add_argument("--level", default="mixed", help=f"of {', '.join(LEVELS)} (default: %(default)s)")
    command.add_argument("--observation", default="scan", choices=OBSERVATIONS, help="(default: %(default)s)")
    command.add_argument("--transitions", type=int, default=TRANSITIONS, help="of each (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="the number after -v in the ids")
    command.set_defaults(run=racing)

    command = commands.add_parser("tracks", help="draw the tracks with their racing lines, and what the tyres give")
    command.add_argument("--out", type=Path, default=Path("outputs"), help="folder (default: %(default)s)")
    command.set_defaults(run=tracks)

    command = commands.add_parser(
        "describe",
        help="show how a split shares out a dataset, as a table and a picture",
        usage="%(prog)s dataset [--split dirichlet] [--clients 10] [--seed 0] [--out picture.png] [option=value ...]",
        epilog="option=value: any option of configs/split/<split>.yaml; docs/splits.md explains them.",
    )
    command.add_argument("dataset", help="a file, a folder, a D4RL name, a Minari id, or a name in configs/data")
    command.add_argument("--split", help="a file of configs/split (default: the data's own, or dirichlet)")
    command.add_argument("--clients", type=int, help="how many (default: as the split's file says)")
    command.add_argument("--seed", type=int, default=0, help="the same seed makes the same split")
    command.add_argument("--out", type=Path, help="where to save the picture (default: in outputs/)")
    command.set_defaults(run=describe_split, overrides=[])

    return top


def main(arguments: list[str] | None = None) -> None:
    top = parser()
    # argparse cannot take option=value words after a --flag as arguments of a command; what is unknown is theirs.
    options, unknown = top.parse_known_args(arguments)
    if unknown and not hasattr(options, "overrides"):
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.overrides = unknown
    options.run(options)


if __name__ == "__main__":
    guarded(main)
