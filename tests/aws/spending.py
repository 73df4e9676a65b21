"""What a run may cost at most: counted, priced and stated before anything is made. No I/O."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass, fields


class SpendingError(Exception):
    """The run would cost more than it may. The text says how much, and what to do."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars; assumed, not asked for: those of us-east-1 in 2025, or dearer, before taxes."""

    shard_hour: float = 0.015
    """An open shard of a provisioned stream; a begun hour counts as a whole one."""
    million_puts: float = 0.014
    """A million PUT payload units: records of up to 25 KB."""
    million_writes: float = 1.25
    """A million write request units of an on-demand table: rows of up to 1 KB."""
    million_reads: float = 0.25
    """A million read request units: rows of up to 4 KB, read consistently."""


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


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    dollars: float


def lines(use: Use, minutes: float, prices: Prices) -> list[Line]:
    """Return what ``use`` costs at most with a time limit of so many minutes."""
    hours = math.ceil((minutes + OVERTIME_MINUTES) / 60)
    per = f"{use.shards} shards x {hours} h x ${prices.shard_hour:g}"
    return [
        Line(per, use.shards * hours * prices.shard_hour),
        _millions(use.puts, "PUT payload units", prices.million_puts),
        _millions(use.writes, "DynamoDB write units", prices.million_writes),
        _millions(use.reads, "DynamoDB read units", prices.million_reads),
    ]


def _millions(count: int, what: str, price: float) -> Line:
    return Line(f"{count:,} {what} x ${price:g} a million", count * price / 1e6)


def bound(use: Use, minutes: float, prices: Prices) -> float:
    """Return the dollars that ``use`` costs at most."""
    return sum(line.dollars for line in lines(use, minutes, prices))


def statement(minutes: float, prices: Prices) -> list[str]:
    """Return the lines that state the bound of a run, aligned."""
    parts = lines(MOST, minutes, prices)
    parts.append(Line("at most", bound(MOST, minutes, prices)))
    width = max(len(line.what) for line in parts)
    return [f"  {line.what:<{width}}  ${line.dollars:8.4f}" for line in parts]


def require_within(minutes: float, most_dollars: float, prices: Prices) -> None:
    """Raise `SpendingError` if a run of so many minutes may cost more than ``most_dollars``."""
    cost = bound(MOST, minutes, prices)
    if cost > most_dollars:
        raise SpendingError(
            f"A run of {minutes:g} minutes may cost ${cost:.2f}, which is more than the "
            f"${most_dollars:.2f} of --max-cost. Give fewer --minutes, or a higher --max-cost."
        )


class Allowance:
    """Counts what a run uses, and refuses what goes beyond `MOST`. For any thread."""

    def __init__(self, most: Use = MOST) -> None:
        self._most = most
        self._used = Use()
        self._lock = threading.Lock()

    @property
    def used(self) -> Use:
        return self._used

    def take(self, use: Use) -> None:
        """Call this before what costs. Raises `SpendingError`, and counts nothing then."""
        with self._lock:
            after = self._used + use
            if not after.is_within(self._most):
                raise SpendingError(
                    f"The run would use {asdict(after)}, and its bound is for {asdict(self._most)}."
                    " This is a defect of the check; nothing was spent beyond the bound."
                )
            self._used = after
