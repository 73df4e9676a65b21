"""Programs that checks run: git, uv, and tools that uv takes from PyPI, without constraints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.release.checks.check import CheckError

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "release"
UV = Path(sys.executable).with_name("uv")


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0,),
) -> str:
    """Return what a program prints. Raises `CheckError` with its last lines if it fails."""
    # Another interpreter than those of this machine is not downloaded.
    variables = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", **(environment or {})}
    # The installed package is tried, and not the one of this folder.
    variables.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise CheckError(f"there is no program {command[0]}") from None
    if done.returncode not in accepted:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        name = Path(str(command[0])).name
        raise CheckError("\n".join((f"{name} exited with {done.returncode}:", *said[-15:])))
    return done.stdout


def tool(package: str, program: str, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """Return what a program of a package on PyPI prints. Raises `CheckError` if it fails."""
    return run(UV, "tool", "run", "--from", package, program, *arguments, cwd=cwd)


def tracked() -> list[str]:
    """Return the files that git keeps."""
    return run("git", "ls-files").splitlines()


def changed() -> list[str]:
    """Return the files that differ from the last commit, and the new ones."""
    return [line[3:] for line in run("git", "status", "--porcelain").splitlines()]
