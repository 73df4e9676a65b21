"""Freed memory that stays with the process: fewer page faults, in a Python of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

ROUNDS = 20
BLOCKS = 4
SIZE = 12_000_000
EACH_FAULTS = BLOCKS * SIZE // 4096 * (ROUNDS - 1)
"""The page faults of all rounds but the first, if each fetches its memory anew."""

PROGRAM = f"""
import resource, sys
from sparkinesis.source.reading.shard_reader import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
for number in range({ROUNDS}):
    blocks = [b"x" * {SIZE} for _ in range({BLOCKS})]
    del blocks
    if number == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc only")


def faults(how: str, **environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and the page faults of all rounds but the first."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
    own.pop("GLIBC_TUNABLES", None)
    command = [sys.executable, "-c", PROGRAM, how]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**own, **environment}
    ).stdout.split()
    return said[0] == "True", int(said[1])


def test_freed_pages_are_not_fetched_anew() -> None:
    # Less than all of them where the system gives memory in larger pages, too.
    assert faults("leave")[1] > EACH_FAULTS // 5
    kept, count = faults("keep")
    assert kept
    assert count < EACH_FAULTS // 20


@pytest.mark.parametrize(
    "variable",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
)
def test_the_users_own_settings_stay(variable: dict[str, str]) -> None:
    kept, count = faults("keep", **variable)
    assert not kept
    assert count > EACH_FAULTS // 2
