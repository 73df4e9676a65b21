"""Builds the site, each time in a process of its own, and compares two builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Build:
    """A build that runs: Sphinx's process, and the folder of what is not a part of the site."""

    process: subprocess.Popen[str]
    scratch: str


def begin_build(docs: Path, site: Path) -> Build:
    """Begin to build a site anew, with warnings as errors."""
    shutil.rmtree(site, ignore_errors=True)
    scratch = tempfile.mkdtemp(prefix="sparkinesis-site-")
    command = ["-W", "--keep-going", "-q", "-E", "-b", "html", "-d", scratch, str(docs), str(site)]
    process = subprocess.Popen(
        [sys.executable, "-m", "sphinx", *command],
        env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Build(process, scratch)


def finish(build: Build) -> list[str]:
    """Wait for the end of a build; return its warnings, each a line."""
    try:
        _, said = build.process.communicate()
    finally:
        shutil.rmtree(build.scratch, ignore_errors=True)
    lines = [line for line in said.splitlines() if line.strip()]
    return lines or [f"Sphinx ended with {build.process.returncode}"] * bool(
        build.process.returncode
    )


def differences(one: Path, other: Path) -> list[str]:
    """Return a line for each file that two builds do not have in common."""
    files = [_files(site) for site in (one, other)]
    found = [f"{name} is in one of two builds only" for name in sorted(files[0] ^ files[1])]
    return found + [
        f"{name} differs between two builds"
        for name in sorted(files[0] & files[1])
        if (one / name).read_bytes() != (other / name).read_bytes()
    ]


def _files(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
