"""Prometheus' own checker of rules, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_PATH = shutil.which("promtool")

NEEDS_PROMTOOL = pytest.mark.skipif(
    _PATH is None, reason="promtool is not installed; Debian's package is prometheus"
)


def promtool(*arguments: str | Path) -> str:
    """Run it, and return what it says. Raises AssertionError if it finds fault."""
    assert _PATH is not None
    done = subprocess.run(
        [_PATH, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
