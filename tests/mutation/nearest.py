"""The tests that may notice a fault, the nearest first, by a record of which tests run which lines.

The record is made once, and holds the texts of that time, so that a later text's lines are found.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.check import importing, its_test
from tests.mutation.tree import PACKAGE, ROOT

RECORDS = ROOT / ".venv" / "mutation"
RECORDED = (
    "tests/unit/lease",
    "tests/unit/worker",
    "tests/unit/stream",
    "tests/unit/source",
    "tests/unit/compat",
    "tests/integration/lease",
    "tests/integration/stream",
    "tests/properties",
    "tests/integration/worker/test_*.py",
)
"""What is recorded, each in a process: the nearest tests without Spark and the simulation."""
PLUGIN = "tests.mutation.recording"
_UNKNOWN = 1.0
"""Seconds of a test that was not recorded."""
_UNKNOWN_FILE = 30.0
"""Seconds of a file, or a folder, of such tests."""


@dataclass
class Record:
    """Which tests run which lines of the package."""

    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    """By file, as its path in the package."""
    seconds: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, found: Mapping[str, Mapping[str, object]]) -> None:
        """Add what `tests.mutation.recording` has written."""
        self.seconds.update(found["seconds"])  # type: ignore[arg-type]
        self.texts.update(found["texts"])  # type: ignore[arg-type]
        for file, lines in found["lines"].items():
            mine = self.lines.setdefault(file, {})
            for line, tests in lines.items():  # type: ignore[attr-defined]
                mine.setdefault(int(line), set()).update(tests)

    def tests_of(self, file: str, line: int, text: str) -> set[str]:
        """Return the tests that run a line; those of the whole file for one that no test runs.

        A line of a module or a class, such as a constant, is run when it is imported.
        """
        lines = self.lines.get(file, {})
        old = _line_before(self.texts.get(file, ""), text, line)
        found = next((lines[n] for n in range(old, max(0, old - 8), -1) if lines.get(n)), None)
        return found or {test for tests in lines.values() for test in tests}


def _line_before(old: str, new: str, line: int) -> int:
    """Return the number that a line of the new text has in the old one, or the nearest above it."""
    if old == new:
        return line
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    for block in reversed(matcher.get_matching_blocks()):
        if block.size and block.b < line:
            return block.a + min(line - block.b, block.size)
    return 1


def stages(tests: Iterable[str], file: str, record: Record, most: float) -> list[list[str]]:
    """Return the tests in the order in which they are run: unit tests, then all others.

    The unit tests of the module always run; others, the quickest first, for ``most`` seconds in
    all.
    """
    mine = unit_tests_of(file)
    rest = sorted(
        (test for test in tests if test.partition("::")[0] not in mine and is_there(test)),
        key=lambda test: record.seconds.get(test, _UNKNOWN),
    )
    unit, others = list(mine), list[str]()
    left = most
    for test in rest:
        left -= record.seconds.get(test, _UNKNOWN)
        if left < 0:
            break
        (unit if test.startswith("tests/unit/") else others).append(test)
    return [stage for stage in (unit, others) if stage]


def unit_tests_of(file: str) -> list[str]:
    """Return a module's own unit test, and those that import the module."""
    own = its_test(PACKAGE.relative_to(ROOT) / file)
    name = f"sparkinesis.{file.removesuffix('.py').replace('/', '.')}"
    found = [path for path in importing(name) if path.parts[1] == "unit"]
    first = [] if own is None else [own]
    return [path.as_posix() for path in (*first, *(one for one in found if one != own))]


def is_there(test: str) -> bool:
    """Return True if a test, or a file or folder of tests, exists."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.exists() and (not name or f"def {name.rpartition('::')[2]}(" in path.read_text())


def seconds_of(tests: Sequence[str], record: Record) -> float:
    """Return how long tests take; a file stands for all of its tests."""
    total = 0.0
    for test in tests:
        known = [each for one, each in record.seconds.items() if one.partition("::")[0] == test]
        unknown = _UNKNOWN if "::" in test else _UNKNOWN_FILE
        total += sum(known) or record.seconds.get(test, unknown)
    return total


def read_record() -> Record:
    """Return the record, and make what is missing of it first."""
    RECORDS.mkdir(exist_ok=True)
    record = Record()
    for pattern in RECORDED:
        for path in sorted(ROOT.glob(pattern)):
            tests = path.relative_to(ROOT).as_posix()
            kept = RECORDS / f"{tests.replace('/', '.')}.json"
            if not kept.exists():
                _record(tests, kept)
            record.add(json.loads(kept.read_text()))
    return record


def _record(tests: str, out: Path) -> None:
    print(f"Recording which lines {tests} runs ...", file=sys.stderr)
    out.write_text('{"lines": {}, "seconds": {}, "texts": {}}')  # in case that a test ends the run
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", PLUGIN, tests],
        cwd=ROOT,
        env={**os.environ, "LINES_OF_TESTS": str(out)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
