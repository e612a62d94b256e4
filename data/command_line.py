"""What every script shares: an argument parser with helpful errors, and a way to end with a sentence."""

import argparse
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from data.errors import InputError, nearest


class Parser(argparse.ArgumentParser):
    """argparse whose errors are sentences that name the nearest flag."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--?[\w-]+)", message)
        known = [flag for action in self._actions for flag in action.option_strings]
        if unknown:
            message = f"there is no flag '{unknown[1]}'; {nearest(unknown[1], known)}"
        raise InputError(f"{self.prog}: {message}")


def guarded(main: Callable[[], None]) -> None:
    """Run a script: a fault in the input is one sentence and exit code 2."""
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
