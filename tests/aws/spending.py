"""What a run may cost at most: counted, priced and stated before anything is made. No I/O."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass, fields

SHARD_HOUR = 0.015
"""US dollars of an open shard. All prices are assumed: those of us-east-1 in 2025, before taxes."""
MILLION_PUTS = 0.014
"""A million PUT payload units: records of up to 25 KB."""
MILLION_WRITES = 1.25
"""A million write request units of an on-demand table: rows of up to 1 KB."""
MILLION_READS = 0.25
"""A million read request units: rows of up to 4 KB, read consistently."""


class SpendingError(Exception):
    """The run would use more than its bound."""


@dataclass(frozen=True, slots=True)
class Use:
    """What costs money. Calls that only read a stream, list or describe cost nothing."""

    shards: int = 0
    """Shards that are ever opened, by a new stream or a reshard."""
    puts: int = 0
    writes: int = 0
    reads: int = 0

    def __add__(self, more: Use) -> Use:
        return Use(*(getattr(self, f.name) + getattr(more, f.name) for f in fields(Use)))

    def is_within(self, most: Use) -> bool:
        return all(getattr(self, f.name) <= getattr(most, f.name) for f in fields(Use))


MOST = Use(shards=7, puts=5_000, writes=2_000, reads=2_000)
"""What a run may use: two shards that become five by a split and a merge, and a stream of one shard
that is made twice."""


OVERTIME_MINUTES = 10
"""A wait that has begun at the time limit, and the removal, take less than that."""


def dollars(use: Use, minutes: float) -> float:
    """Return what ``use`` costs at most with a time limit of so many minutes.

    A begun hour of a shard counts as a whole one.
    """
    hours = math.ceil((minutes + OVERTIME_MINUTES) / 60)
    millions = (
        use.puts * MILLION_PUTS + use.writes * MILLION_WRITES + use.reads * MILLION_READS
    ) / 1e6
    return use.shards * hours * SHARD_HOUR + millions


class Allowance:
    """Counts what a run uses, and refuses what goes beyond `MOST`. For any thread."""

    def __init__(self) -> None:
        self._used = Use()
        self._lock = threading.Lock()

    @property
    def used(self) -> Use:
        return self._used

    def take(self, use: Use) -> None:
        """Call this before what costs. Raises `SpendingError`, and counts nothing then."""
        with self._lock:
            after = self._used + use
            if not after.is_within(MOST):
                raise SpendingError(
                    f"The run would use {asdict(after)}, and its bound is for {asdict(MOST)}."
                    " This is a defect of the check; nothing was spent beyond the bound."
                )
            self._used = after
