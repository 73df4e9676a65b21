"""Plays scenarios against kinesis-mock, dynalite and DynamoDB Local, and prints a table.

Needs Node.js; DynamoDB Local needs Java and Maven. Exits with 1 if a scenario fails, with 2 if a
tool is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.interop.judge import UnequalReplayError, Verdict
from tests.interop.processes import ScenarioError
from tests.interop.report import FIGURES, figures, print_table
from tests.interop.scenarios import SCENARIOS, Scenario, stage
from tests.interop.servers import (
    DYNALITE,
    DYNAMODB_LOCAL,
    DYNAMODBS,
    MissingToolError,
    install,
    require_tools,
)

_HEADING = ("servers", "scenario", *FIGURES, "seconds")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make interop-emulators", description=__doc__)
    parser.add_argument(
        "--dynamodb",
        choices=["dynalite", "dynamodb-local"],
        help="the server for lease tables; default: each of them for one scenario",
    )
    parser.add_argument(
        "--scenario",
        type=int,
        choices=range(1, len(SCENARIOS) + 1),
        help="play only this one; default: all",
    )
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    tables: dict[Scenario, str | None] = {}
    for number, scenario in enumerate(SCENARIOS, 1):
        if given.scenario in {None, number}:
            name = DYNALITE if number % 2 == 0 else DYNAMODB_LOCAL
            if given.dynamodb is not None:
                name = DYNAMODBS[given.dynamodb != "dynalite"]
            tables[scenario] = name if scenario.needs_table else None
    needed = sorted({name for name in tables.values() if name is not None})
    try:
        require_tools(needed)
        install(needed)
    except MissingToolError as error:
        print(f"No scenario was played: {error}", file=sys.stderr)
        return 2
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    folder = Path(tempfile.mkdtemp(prefix="sparkinesis-interop-"))
    rows: list[Sequence[str]] = []
    is_good = True
    for number, (scenario, table) in enumerate(tables.items(), 1):
        servers = " + ".join(["kinesis-mock", *([table] if table else [])])
        print(f"{servers}: {scenario.name} ...", flush=True)
        began = time.monotonic()
        verdict = _play(scenario, table, folder / str(number))
        is_good = is_good and verdict is not None and verdict.is_good
        seconds = f"{time.monotonic() - began:.0f}"
        rows.append((servers, scenario.name, *figures(verdict), seconds))
    print_table([_HEADING, *rows], texts=2)
    if not is_good:
        print(f"A scenario failed. The logs are in {folder}", file=sys.stderr)
    return 0 if is_good else 1


def _play(scenario: Scenario, table: str | None, folder: Path) -> Verdict | None:
    try:
        with stage(table, folder) as on:
            return scenario.play(on)
    except (ScenarioError, UnequalReplayError) as error:
        print(f"  {error}", file=sys.stderr, flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main())
