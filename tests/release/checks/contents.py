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

_NO_PART_OF_A_PACKAGE = re.compile(r"(tests?|test_.*|__pycache__|\..*)")


def wheel_problems(names: Iterable[str]) -> list[str]:
    """Return the files of a wheel that no program needs, although they are among the sources."""
    return [
        f"{name} does not belong into a wheel"
        for name in sorted(names)
        if ".dist-info/" not in name and is_stranger(name)
    ]


def sdist_problems(names: Iterable[str], tracked: Iterable[str], version: str) -> list[str]:
    """Return what is wrong with a source distribution; ``tracked``: the files that git keeps."""
    folder = f"sparkinesis-{version}/"
    outside = [f"{name} is outside of {folder}" for name in names if not name.startswith(folder)]
    inside = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    wanted = {name for name in tracked if name.startswith("src/")} | BESIDE_SOURCES
    too_much = [f"{name} is too much" for name in sorted(inside - wanted)]
    return outside + too_much + [f"{name} is missing" for name in sorted(wanted - inside)]


def is_stranger(name: str) -> bool:
    """Return True for a file that no program needs: a test, a cache, a picture."""
    path = PurePosixPath(name)
    parts = [*path.parts[:-1], path.stem]
    return path.suffix not in PACKAGED or any(map(_NO_PART_OF_A_PACKAGE.fullmatch, parts))
