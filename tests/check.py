"""Checks one file in seconds: ``make check FILE=src/sparkinesis/lease/rules/taker.py``.

Runs ruff and mypy on the file, and the unit test at the same path, or the file itself if it is a
test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = Path("src", "sparkinesis")


def its_test(path: Path) -> Path | None:
    """Return the test of a file (paths below the root), or None if it has none of its own."""
    if path.name.startswith("test_"):
        return path
    if not path.is_relative_to(SOURCE):
        return None
    inside = path.relative_to(SOURCE)
    test = Path("tests", "unit", inside.parent, f"test_{inside.name}")
    return test if (ROOT / test).exists() else None


def commands(path: Path) -> list[list[str]]:
    """Return what is run, in this order."""
    python, name = sys.executable, str(path)
    found = [
        [python, "-m", "ruff", "check", name],
        [python, "-m", "ruff", "format", "--check", name],
        [python, "-m", "mypy", name],
    ]
    test = its_test(path)
    if test is not None:
        # A long test that is named is run.
        found.append([python, "-m", "pytest", "-q", "-m", "long or not long", str(test)])
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not (ROOT / arguments[0]).is_file():
        print("Usage: make check FILE=<a Python file below this folder>")
        return 2
    path = (ROOT / arguments[0]).relative_to(ROOT)
    failed = [
        command
        for command in commands(path)
        if subprocess.run(command, cwd=ROOT, check=False).returncode
    ]
    if its_test(path) is None:
        print(f"{path} has no unit test of its own.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
