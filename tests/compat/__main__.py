"""Runs the core of the tests on combinations of Spark, Python, Java and libraries.

Installs the project's wheel, and its dependencies from PyPI, into build/compat. Exits with 1 if a
test fails. An environment that this machine cannot have is left out, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.compat import building, report
from tests.compat.environments import ENVIRONMENTS
from tests.compat.running import Outcome, earlier, run


def _arguments() -> argparse.Namespace:
    names = [each.name for each in ENVIRONMENTS]
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--json", type=Path, help="write what was run into this file")
    parser.add_argument(
        "--page",
        type=Path,
        help="write the table into this Markdown page, with what earlier runs have found",
    )
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    try:
        wheel = building.wheel()
    except building.BuildError as error:
        print(f"The wheel cannot be built: {error}", file=sys.stderr)
        return 2
    outcomes: list[Outcome] = []
    for environment in ENVIRONMENTS:
        if environment.name in given.only:
            print(f"{environment.name} ...", flush=True)
            outcomes.append(run(environment, wheel))
            outcomes[-1].keep()
            said = (report.remarks(outcomes[-1:]), f"{outcomes[-1].seconds} s")
            print(*(f"  {each}" for each in (*said[0], said[1])), sep="\n", flush=True)
    print(f"\n{report.table(outcomes)}")
    if given.json:
        given.json.write_text(report.as_json(outcomes) + "\n", "utf-8")
    if given.page:
        now = {each.environment: each for each in outcomes}
        report.write([now.get(each) or earlier(each) for each in ENVIRONMENTS], given.page)
    return 0 if all(each.is_good or each.not_run for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
