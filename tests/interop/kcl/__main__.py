"""Plays scenarios with a Java KCL and with workers of this library, and prints a table.

Without ``--scenario``, the leader's lock passes between this library and Java's lock client, too.

Three streams on the local server, one application. Needs Maven and a JDK, but for an upgrade. Exits
with 1 if a scenario fails, with 2 if a tool is missing.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.kcl.java import KCL, build, require_java
from tests.interop.kcl.lock import play as play_lock
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.rows import Comparison
from tests.interop.kcl.scenarios import SCENARIOS, TEN_MINUTES, Scenario
from tests.interop.kcl.stage import stage
from tests.interop.kcl.upgrade import upgrades
from tests.interop.processes import ScenarioError
from tests.interop.report import FIGURES, figures, print_table
from tests.interop.servers import MissingToolError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kcl-3.5.1-several-streams.json"
_HEADING = ("scenario", *FIGURES, "seconds")
_ROWS_HEADING = (
    "attribute", "ours", "Java's", "why they differ",
    "same", "value", "type", "only ours", "only Java's",
)  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=["java", "ten-minutes", "upgrade"],
        default="java",
        help="ten-minutes: eight shards, with a watch of the shares at the end, in four fleets; "
        "upgrade: without Java, replace an older revision of this library, and go "
        "back",
    )
    parser.add_argument(
        "--from", dest="revision", default="HEAD~1", metavar="REVISION", help="the older revision"
    )
    parser.add_argument(
        "--scenario",
        type=int,
        choices=range(1, len(SCENARIOS) + 1),
        help="play only this one; default: all",
    )
    parser.add_argument(
        "--kcl",
        default=KCL,
        metavar="VERSION",
        help="of the Java workers, from 3.4 on; default: %(default)s",
    )
    parser.add_argument(
        "--record", action="store_true", help=f"write Java's rows to {FIXTURE.name}, for tests"
    )
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    scenarios: Sequence[Scenario] = SCENARIOS
    if given.what == "upgrade":
        scenarios = [Scenario(*each) for each in upgrades(given.revision)]
    else:
        try:
            require_java()
            build(given.kcl)
        except MissingToolError as error:
            print(f"No scenario was played: {error}", file=sys.stderr)
            return 2
        if given.what == "ten-minutes":
            scenarios = TEN_MINUTES
    folder = Path(tempfile.mkdtemp(prefix="sparkinesis-interop-"))
    rows: list[Sequence[str]] = []
    comparisons: list[Comparison] = []
    is_good = True
    for number, scenario in enumerate(scenarios, 1):
        if given.scenario not in {None, number}:
            continue
        print(f"{scenario.name} ...", flush=True)
        began = time.monotonic()
        outcome = _play(scenario, folder / str(number), given.kcl)
        is_good = is_good and outcome is not None and outcome.is_good
        found = figures(None if outcome is None else outcome.verdict)
        rows.append((scenario.name, *found, f"{time.monotonic() - began:.0f}"))
        if outcome is not None:
            comparisons += outcome.comparisons
            if given.record and outcome.recorded:
                FIXTURE.write_text(_json(outcome.recorded), encoding="utf-8")
    if given.scenario is None and given.what == "java" and given.kcl == KCL:
        is_good = _play_lock(folder / "lock") and is_good
    if comparisons:
        print_table([_ROWS_HEADING, *map(_cells, comparisons)], texts=4)
    print_table([_HEADING, *rows], texts=1)
    if not is_good:
        print(f"A scenario failed. The logs are in {folder}", file=sys.stderr)
    return 0 if is_good else 1


def _play(scenario: Scenario, folder: Path, kcl: str) -> Outcome | None:
    try:
        with stage(folder, scenario.shards, kcl) as on:
            outcome = scenario.play(on)
    except ScenarioError as error:
        print(f"  {error}", file=sys.stderr, flush=True)
        return None
    for problem in outcome.problems:
        print(f"  {problem}", file=sys.stderr, flush=True)
    for cause, count in sorted(outcome.repeats.items()):
        print(f"  {count} again: {cause}", flush=True)
    return outcome


def _play_lock(folder: Path) -> bool:
    print("the leader's lock, with Java's lock client ...", flush=True)
    try:
        problems = play_lock(folder)
    except ScenarioError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"  {problem}", file=sys.stderr, flush=True)
    return not problems


def _cells(one: Comparison) -> Sequence[str]:
    why = "NOT EXPLAINED" if one.why is None else one.why
    counts = (one.same, one.other_value, one.other_type, one.only_ours, one.only_java)
    return (one.attribute, *one.example, why, *map(str, counts))


def _json(recorded: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return base64.b64encode(value).decode()

    return json.dumps(recorded, indent=1, sort_keys=True, default=text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
