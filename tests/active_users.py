"""A whole run of the example of who is active now, by its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import pace

_LONGEST_MINUTE = 10.0
ROOT = Path(__file__).parents[1]


def run_active_users(*arguments: str, minute: float) -> None:
    """Run the example, which checks itself and says so.

    minute: the seconds of its minute on an idle machine. What its application does not do within a
    minute makes an eviction wrong.
    """
    minute = min(pace.seconds(minute), _LONGEST_MINUTE)
    arguments = (*arguments, "--minute", f"{minute:.1f}")
    done = subprocess.run(
        [sys.executable, "-m", "examples.active_users", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=pace.seconds(480) + 60 * minute,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "active users: OK"
    assert any(line.endswith("heartbeats processed, 0 of them old") for line in lines)
    assert any(line.endswith("evictions, 0 of them wrong") for line in lines)
    assert not any(line.startswith("0 heartbeats") for line in lines)
    (by_stream,) = [line for line in lines if line.startswith("they are ")]
    parts = [part.split(" of ") for part in by_stream.removeprefix("they are ").split(" and ")]
    assert {stream for _, stream in parts} == {"heartbeats-web", "heartbeats-mobile"}
    assert "0" not in {count for count, _ in parts}
