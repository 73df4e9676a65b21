"""How many examples a drawn test plays: a quarter in `make test`, all in `make test-all`."""

from __future__ import annotations

import os

_SHARE = 1.0 if os.environ.get("EXAMPLES") == "all" else 0.25


def examples(most: int, least: int = 10) -> int:
    """Return the share of ``most`` that is played in this run."""
    return max(least, round(most * _SHARE))
