"""How many examples a drawn test plays: a quarter in `make test`, all in `make test-more`."""

from __future__ import annotations

import os

_SHARE = 1.0 if os.environ.get("EXAMPLES") == "all" else 0.25


def examples(most: int) -> int:
    """Return the share of ``most`` that is played in this run."""
    return max(10, round(most * _SHARE))
