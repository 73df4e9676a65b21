"""Exponential backoff."""

from __future__ import annotations

_MOST_DOUBLINGS = 32
"""The exponent's limit, so that no number of failures overflows a float."""


def exponential_backoff(base: float, cap: float, failures: int) -> float:
    """Return the seconds to wait after so many consecutive ``failures``.

    The wait is ``base`` after the first one, and doubles with each other up to ``cap``. A caller
    that wants jitter draws a wait up to this one.
    """
    return min(cap, base * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS))
