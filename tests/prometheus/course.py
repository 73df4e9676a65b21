"""What happens when, as parts of the time from the start to the end of the producer. Pure."""

from __future__ import annotations

from itertools import cycle, pairwise

BEGIN = ("split", "kill", "merge", "kill_in_fleet", "end")
"""Each of them happens once, whatever the duration."""
RESHARDS = ("split", "merge")
LONGEST_GAP = 30.0
SLOW_FROM = 0.65
"""From here to the end, processors are slower than the producer."""


def course(seconds: float) -> list[tuple[float, str]]:
    """Return (second, act) in order; between acts are equal gaps, of half a minute at most."""
    quiet = seconds * SLOW_FROM
    count = max(len(BEGIN), round(quiet / LONGEST_GAP))
    more = cycle(RESHARDS)
    acts = [BEGIN[n] if n < len(BEGIN) else next(more) for n in range(count)]
    # The spare gap at the end lets the last of them settle.
    moments = [quiet * (n + 1) / (count + 1) for n in range(count)]
    assert all(a < b for a, b in pairwise(moments))
    return [*zip(moments, acts, strict=True), (quiet, "slow")]
