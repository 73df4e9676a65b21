"""The files in a wheel and in a source distribution, and which do not belong there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

PACKAGED = {".py", ".typed", ".css", ".html", ".js"}
"""The endings of files that the package uses when it runs."""
BESIDE_SOURCES = {
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
}
"""The files of a source distribution besides the sources: pip builds the wheel by them."""

_ABOUT = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
_NO_PART_OF_A_PACKAGE = re.compile(r"(tests?|test_.*|__pycache__|\..*)")


def wheel_problems(names: Iterable[str], tracked: Iterable[str], version: str) -> list[str]:
    """Return what is wrong with the files of a wheel; ``tracked``: the files that git keeps."""
    about = f"sparkinesis-{version}.dist-info/"
    names = set(names)
    of_package = {name for name in names if not name.startswith(about)}
    wanted = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    found = [*_differences(of_package, wanted)]
    found += [
        f"{name} does not belong into a wheel" for name in sorted(of_package) if is_stranger(name)
    ]
    found += _differences(
        {name.removeprefix(about) for name in names if name.startswith(about)}, _ABOUT
    )
    return found


def sdist_problems(names: Iterable[str], tracked: Iterable[str], version: str) -> list[str]:
    """Return what is wrong with the files of a source distribution."""
    folder = f"sparkinesis-{version}/"
    outside = [f"{name} is outside of {folder}" for name in names if not name.startswith(folder)]
    inside = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    wanted = {name for name in tracked if name.startswith("src/")} | BESIDE_SOURCES
    return outside + _differences(inside, wanted)


def is_stranger(name: str) -> bool:
    """Return True for a file that no program needs: a test, a cache, a picture."""
    path = PurePosixPath(name)
    parts = [*path.parts[:-1], path.stem]
    return path.suffix not in PACKAGED or any(map(_NO_PART_OF_A_PACKAGE.fullmatch, parts))


def _differences(names: set[str], wanted: set[str]) -> list[str]:
    return [f"{name} is too much" for name in sorted(names - wanted)] + [
        f"{name} is missing" for name in sorted(wanted - names)
    ]
