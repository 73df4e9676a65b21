"""When a pool of threads grows: steps wait although the process has CPU time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

FIRST_THREADS = 2
"""Threads that are started as soon as they are needed; further ones only after a wait."""

REFUSED = 1.0
"""Seconds until the next attempt, after the operating system has refused a thread."""

TICK = 0.004
"""Seconds. Steps that are due within one tick begin together, and a step waits that long for a
thread before one is added."""

JOIN = 0.012
"""Seconds that a step which is due by its time waits for the thread that takes others of its kind,
before another thread joins. An idle shard's poll may be that late."""

_STARVED = 0.1
"""Seconds after which a waiting step has a thread added even though this process lacks CPU time,
and between two such threads."""

_PATIENCE = ((20, TICK), (40, 0.3), (math.inf, 1.0))
"""The seconds that a step waits for a thread before one is added, while there are fewer threads
than this. On an overloaded machine, more threads make each call slower; and a thousand shards that
are due at once, as at the start, need no thread each: 20 threads take their steps within that
time. 40 threads serve a thousand calls a second of 30 ms each."""


def threads_to_add(
    alive: int, waits: Iterator[float], *, added_ago: float, is_on_time: bool
) -> int:
    """Return the number of threads to add for steps that wait, if calls that block hold all.

    alive: the number of threads. waits: the seconds for which each step has waited, the longest
    first; at least one. added_ago: the seconds since the last thread was added. is_on_time: False
    if the thread that watches the time was late itself: the threads only lack CPU time, and more
    of them would not help.
    """
    most, patience = next(rule for rule in _PATIENCE if alive < rule[0])
    longest = next(waits)
    if longest >= patience and is_on_time:
        overdue = 1 + sum(wait >= patience for wait in waits)
        room = min(alive, most - alive) if patience == TICK else 1
        return int(min(overdue, room))
    return int(longest >= max(patience, _STARVED) and added_ago >= _STARVED)
