"""Make and look at datasets: `python scripts/make_dataset.py pendulum --episodes 1000`."""

import argparse
import sys

from data.errors import InputError
from data.pendulum import DATASET_ID, EPISODES, ensure_pendulum


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}; --help lists the options.\n")


def pendulum(options: argparse.Namespace) -> None:
    print(ensure_pendulum(options.id, options.episodes, options.seed))


def parser() -> Parser:
    top = Parser(description=__doc__)
    commands = top.add_subparsers(title="commands", required=True, metavar="command")

    command = commands.add_parser("pendulum", help="log Pendulum-v1 with drivers of four skills, as Minari data")
    command.add_argument("--id", default=DATASET_ID, help="Minari id to write (default: %(default)s)")
    command.add_argument("--episodes", type=int, default=EPISODES, help="200 rows each (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="the same seed makes the same logs")
    command.set_defaults(run=pendulum)

    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except InputError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
