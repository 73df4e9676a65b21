"""Plants small faults in modules, one at a time, and prints those that no test notices.

``make mutate FILE=src/sparkinesis/lease/rules/taker.py ARGS="--draw 20 --seed 1"``

Without a file, the faults are those of `HARMFUL`: the modules where a fault loses records, doubles
or misleads. A fault is planted in a copy of the package. The module's own tests run first, then the
others that run the line, until one fails. With ``--simulate 20``, what is left is played for 20
seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.mutation.equivalents import EQUIVALENTS
from tests.mutation.faults import Fault, faults_of
from tests.mutation.nearest import Record, read_record, seconds_of, stages
from tests.mutation.tree import HUNG, PACKAGE, SURVIVED, Tree

EQUIVALENT = "equivalent"
_SLOWER = 6.0
"""Times of a run without a fault after which a run counts as hung; this machine may be busy."""
_AT_LEAST = 40.0
"""Seconds for which no run counts as hung."""


HARMFUL = (
    "lease/acquisitions.py",
    "lease/assignment/assigner.py",
    "lease/assignment/assignment.py",
    "lease/coordinator.py",
    "lease/held.py",
    "lease/observer.py",
    "lease/renewer.py",
    "lease/rules/children.py",
    "lease/rules/audit.py",
    "lease/rules/observations.py",
    "lease/rules/reset_plan.py",
    "lease/rules/row_streams.py",
    "lease/rules/shard_sync.py",
    "lease/rules/taker.py",
    "lease/scan_schedule.py",
    "lease/shards/shard_ends.py",
    "lease/shards/shard_syncer.py",
    "lease/table/requests.py",
    "lease/term.py",
    "source/offsets.py",
    "source/planning/batch_end.py",
    "source/planning/batch_instant.py",
    "source/planning/probing/end_in_shard.py",
    "source/planning/batch_start.py",
    "stream/calls/answers/decoding.py",
    "stream/calls/direct/connection.py",
    "stream/calls/direct/http_answer.py",
    "stream/fan_out/current_subscription.py",
    "stream/fan_out/cursor.py",
    "stream/kpl/envelope.py",
    "stream/kpl/unpack.py",
    "stream/reading/shard_cursor.py",
    "stream/reading/range.py",
    "stream/reading/retention.py",
    "stream/reading/shard_end.py",
    "worker/checkpoint_rules.py",
    "worker/checkpointer.py",
    "worker/lifecycle/batch_loop.py",
    "worker/lifecycle/shard/batcher.py",
    "worker/lifecycle/shard/concurrent_delivery.py",
    "worker/lifecycle/shard/delivery.py",
    "worker/lifecycle/shard/processing.py",
    "worker/lifecycle/shard/reaction.py",
    "worker/lifecycle/shard/starting.py",
)
"""Leases, checkpoints, delivery, offsets, plans, fan-out, calls and de-aggregation."""


class Planter:
    """Plants faults in a copy of the package, and runs the tests."""

    def __init__(self, tree: Tree, record: Record, given: argparse.Namespace) -> None:
        self._tree = tree
        self._record = record
        self._given = given
        self._passing: set[str] = set()
        self._failing: set[str] = set()
        """Tests that have been run without a fault, because they failed with one."""

    def result(self, file: str, text: str, fault: Fault) -> str:
        """Return the test that notices a fault, `SURVIVED` or `HUNG`."""
        changed = fault.in_text(text)
        tests = self._given.own or self._record.tests_of(file, fault.line, text)
        for stage in stages(tests, file, self._record, self._given.most):
            self._tree.write(file, changed)
            found = self._tree.test(stage, self._limit(stage), self._failing)
            self._tree.write(file, text)
            if found == HUNG or (found != SURVIVED and self._has_passed(found)):
                return found
            if found != SURVIVED:  # what fails by itself is left out now
                return self.result(file, text, fault)
        if not self._given.simulate:
            return SURVIVED
        self._tree.write(file, changed)
        found = self._tree.simulate(self._given.simulate)
        self._tree.write(file, text)
        return found

    def _limit(self, tests: list[str]) -> float:
        return max(_AT_LEAST, _SLOWER * seconds_of(tests, self._record))

    def _has_passed(self, test: str) -> bool:
        """Return True if a test passes on the package as it is; an error of importing counts."""
        if test in self._passing or not test.startswith("tests/"):
            return True
        if self._tree.test([test], self._limit([test]), ()) == SURVIVED:
            self._passing.add(test)
            return True
        print(f"{test} fails without a fault, too", file=sys.stderr)
        self._failing.add(test)
        return False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="modules of the package")
    parser.add_argument("--draw", type=int, metavar="N", help="only N faults of them all")
    parser.add_argument("--seed", type=int, default=None, help="of the draw")
    parser.add_argument("--line", type=int, help="only the faults of a line")
    parser.add_argument(
        "--own", nargs="*", metavar="TEST", help="run the module's own unit test and these only"
    )
    parser.add_argument("--most", type=float, default=60.0, help="seconds of tests for a fault")
    parser.add_argument("--simulate", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--again", type=Path, metavar="JSON", help="only its survivors")
    parser.add_argument("--list", action="store_true", help="print the faults, and plant none")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each fault")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    record = Record() if given.list or given.own is not None else read_record()
    counts: dict[str, Counter[str]] = {}
    print(f"The seed is {seed}.", file=sys.stderr)
    faults = _faults(given)
    if given.draw is not None and given.draw < len(faults):
        drawn = random.Random(seed).sample(range(len(faults)), given.draw)
        faults = [faults[n] for n in sorted(drawn)]
    with Tree() as tree:
        planter = Planter(tree, record, given)
        for file, fault in faults:
            began = time.monotonic()
            why = EQUIVALENTS.get((file, fault.where, fault.before, fault.after))
            if given.list:
                result = ""
            elif why is not None:
                result = EQUIVALENT
            else:
                result = planter.result(file, (PACKAGE / file).read_text(), fault)
            outcome = result if result in {SURVIVED, HUNG, EQUIVALENT} else "caught"
            counts.setdefault(file, Counter())[outcome] += 1
            if given.json:
                seconds = round(time.monotonic() - began, 1)
                found = {"file": file, **asdict(fault), "result": result, "seconds": seconds}
                print(json.dumps(found), flush=True)
            elif result in {SURVIVED, ""}:
                print(f"{file} {fault}", flush=True)
    if not given.list:
        print(_table(counts), file=sys.stderr)
    return 1 if any(count[SURVIVED] for count in counts.values()) else 0


def _faults(given: argparse.Namespace) -> list[tuple[str, Fault]]:
    """Return the faults that are asked for, each with its file's path in the package."""
    left = None if given.again is None else _survivors(given.again)
    paths = given.files or [PACKAGE / file for file in HARMFUL]
    files = [path.resolve().relative_to(PACKAGE).as_posix() for path in paths]
    return [
        (file, fault)
        for file in files
        for fault in faults_of((PACKAGE / file).read_text())
        if given.line in {None, fault.line}
        if left is None or (file, fault.where, fault.before, fault.after) in left
    ]


def _survivors(path: Path) -> set[tuple[str, ...]]:
    found = map(json.loads, path.read_text().splitlines())
    return {
        (one["file"], one["where"], one["before"], one["after"])
        for one in found
        if one["result"] == SURVIVED
    }


def _table(counts: dict[str, Counter[str]]) -> str:
    columns = ("caught", HUNG, EQUIVALENT, SURVIVED)
    lines = [f"{'':45}" + "".join(f"{name:>12}" for name in ("planted", *columns))]
    for file, count in [*counts.items(), ("", sum(counts.values(), Counter()))]:
        numbers = (count.total(), *(count[name] for name in columns))
        lines.append(f"{file:45}" + "".join(f"{number:12}" for number in numbers))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
