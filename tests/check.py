"""Checks one file in seconds: ``make check FILE=src/sparkinesis/lease/rules/taker.py``.

Runs ruff and mypy on the file, and its nearest tests: see `nearest`.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = Path("src", "sparkinesis")

_TESTS = Path("tests")
_MOST = 3
"""The most test files that are run for a module without a test at its path."""
_QUICK_FIRST = ("unit", "properties", "integration", "hostile", "page", "simulation", "spark")
_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+([\w.]+))", re.MULTILINE
)


def its_test(path: Path) -> Path | None:
    """Return the test of a file (paths below the root), or None if it has none of its own."""
    if path.name.startswith("test_"):
        return path
    if not path.is_relative_to(SOURCE):
        return None
    inside = path.relative_to(SOURCE)
    test = Path("tests", "unit", inside.parent, f"test_{inside.name}")
    return test if (ROOT / test).exists() else None


def nearest(path: Path, asked: frozenset[Path] = frozenset()) -> list[Path]:
    """Return the tests that `make check` runs for a file, a few at most.

    They are the unit test at its path; else those of its name, those that import it, those that
    have the words of its name, or those of the modules that import it (but for ``asked``): the
    first of these that there are.
    """
    own = its_test(path)
    if own is not None:
        return [own]
    if not path.is_relative_to(SOURCE.parent):
        return []
    tests = _texts(_TESTS)
    found = (
        [test for test in tests if test.stem == f"test_{path.stem}" and _is_named_for(path, test)]
        or importing(_module(path))
        or [test for test in tests if _is_named_for(path, test)]
        or [
            test
            for each in _importers(SOURCE.parent).get(_module(path), [])
            if each not in asked
            for test in nearest(each, asked | {path})
        ]
        # Nobody imports a plugin: others find it by its name.
        or [test for test in tests if _folders(test) & _folders(path)]
    )
    return sorted(set(found), key=functools.partial(_distance, path))[:_MOST]


def importing(module: str) -> list[Path]:
    """Return the test files that import a module, by its dotted name, sorted."""
    return _importers(_TESTS).get(module, [])


@functools.cache
def _importers(folder: Path) -> dict[str, list[Path]]:
    """Return the files below ``src``, or the test files, by the dotted names that they import."""
    found: dict[str, list[Path]] = {}
    for path in _texts(folder):
        for name in _imported(path):
            found.setdefault(name, []).append(path)
    return found


def _is_named_for(path: Path, test: Path) -> bool:
    """Return True if the words of a module's name are in that of a test of a like folder.

    Commands are tested in the folders of what they do.
    """
    is_like = (
        "integration" in test.parts if "cli" in path.parts else _folders(test) & _folders(path)
    )
    return bool(is_like) and set(path.stem.split("_")) <= set(test.stem.split("_"))


def _distance(path: Path, test: Path) -> tuple[int, int, int, str]:
    """Order tests: the quick ones first, then those of like folders, then those of few modules."""
    folder = test.parts[1]
    stage = _QUICK_FIRST.index(folder) if folder in _QUICK_FIRST else len(_QUICK_FIRST)
    shared = len(_folders(test) & _folders(path)) + _is_named_for(path, test)
    return stage, -shared, len(_imported(test)), str(test)


def _folders(path: Path) -> set[str]:
    """Return the folders below `SOURCE`, or below one of ``tests``."""
    return set(path.parts[2:-1])


def _module(path: Path) -> str:
    """Return the dotted name of a file below ``src``."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _texts(folder: Path) -> dict[Path, str]:
    """Return the texts of all modules below ``src``, or of all test files, by path."""
    pattern = "test_*.py" if folder == _TESTS else "*.py"
    paths = sorted((ROOT / folder).rglob(pattern))
    return {path.relative_to(ROOT): path.read_text("utf-8") for path in paths}


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports: of modules, and of names in modules."""
    folder = _TESTS if path.is_relative_to(_TESTS) else SOURCE.parent
    found: set[str] = set()
    for module, names, plain in _IMPORT.findall(_texts(folder)[path]):
        found |= {plain or module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return frozenset(found)


def forget() -> None:
    """Forget which files there are, and what they import."""
    for known in (_importers, _texts, _imported):
        known.cache_clear()


def commands(path: Path) -> list[list[str]]:
    """Return what is run, in this order."""
    python, name = sys.executable, str(path)
    found = [
        [python, "-m", "ruff", "check", name],
        [python, "-m", "ruff", "format", "--check", name],
        [python, "-m", "mypy", name],
    ]
    tests = nearest(path)
    if tests:
        # A long test that is named is run; of others, those that `make test` leaves out, too.
        marked = "long or not long" if its_test(path) else "not long"
        found.append([python, "-m", "pytest", "-q", "-m", marked, *map(str, tests)])
    return found


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not (ROOT / arguments[0]).is_file():
        problem = f"There is no file {' '.join(arguments)!r}." if arguments else "Check which file?"
        print(f"{problem} Name one: make check FILE=src/sparkinesis/lease/rules/taker.py")
        return 2
    path = (ROOT / arguments[0]).relative_to(ROOT)
    if its_test(path) is None:
        others = ", ".join(map(str, nearest(path))) or "none"
        print(f"{path} has no unit test of its own; the nearest tests: {others}.")
    failed = [
        command
        for command in commands(path)
        if subprocess.run(command, cwd=ROOT, check=False).returncode
    ]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
