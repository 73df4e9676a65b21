"""Checks a release before it is published, or writes the golden files of a version.

Builds the wheel and the source distribution, inspects and installs them, and prints a line for each
check. Needs git, and tools from PyPI. Exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys

from tests.release import golden
from tests.release.checks.check import run_all
from tests.release.checks.release import Release


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make release-check", description=__doc__)
    parser.add_argument("--tag", help="the tag that publishes it: demands its version and a date")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="some checks")
    parser.add_argument("--write", metavar="VERSION", help="write golden files, and check nothing")
    return parser.parse_args()


def main() -> int:
    names = [check.name for check in Release().checks]
    given = _arguments(names)
    if given.write is not None:
        try:
            written = golden.write(given.write)
        except golden.GoldenError as error:
            print(error, file=sys.stderr)
            return 2
        for path in written:
            print(path)
        if not written:
            print("No form differs from that of an earlier version.")
        return 0
    checks = [one for one in Release(given.tag).checks if not given.only or one.name in given.only]
    return 0 if run_all(checks, lambda text: print(text, flush=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
