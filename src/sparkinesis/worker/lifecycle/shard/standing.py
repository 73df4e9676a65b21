"""How far a shard is behind, and since when it stands still, by what its worker has of it. Pure.

The service's figure is that of the last page. It says nothing of the page's records once they are
here: while a processor holds them, they grow old, and no later page may follow. So the age of what
is held counts as well, and so does the time for which no page has come at all.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sparkinesis.worker.batches.batch import RecordBatch

UNHEARD_AFTER = 30.0
"""Seconds without a page after which they count as lag: more than a few retries take."""


TOLD_AFTER = 10.0
"""Seconds from which on a status says why a shard stands still: an usual call is shorter."""


class Reading(msgspec.Struct, frozen=True):
    """What a worker has of a shard. The ages are in seconds."""

    millis_behind_latest: int | None
    """The service's figure at the last page that was taken; None: there was none, or no figure."""
    unheard_for: float | None
    """The time since a page was fetched, or since one was waited for; None: none is waited for."""
    oldest: float | None
    """The age of the oldest record that is fetched and not done; None: no record is here."""


def millis_behind(reading: Reading, usual_wait: float = 0.0) -> int | None:
    """Return the lag in milliseconds, which is never less than the age of what is held.

    None: nothing is known. usual_wait: the seconds between two pages at the tip.
    """
    figure = reading.millis_behind_latest
    if reading.oldest is not None:
        return max(figure or 0, round(reading.oldest * 1000))
    unheard = reading.unheard_for
    if unheard is not None and unheard > UNHEARD_AFTER + usual_wait:
        return (figure or 0) + round(unheard * 1000)
    return figure


class Front(NamedTuple):
    """The first records of a shard that are given to the record processor, and not done."""

    since: float
    """The start of the first call for them, by the worker's clock."""
    batch: RecordBatch
    """The records; their number is not asked for before it is told: packed ones are unpacked."""
    has_failed: bool
    method: str = "process_records"

    def __str__(self) -> str:
        what = "an empty batch"
        if self.batch:
            count, last = len(self.batch), self.batch.last
            what = f"record {last}" if count == 1 else f"{count:,} records up to {last}"
        if self.has_failed:
            return f"{self.method} fails again and again on {what}"
        return f"{self.method} has not returned from {what}"


class Standstill(NamedTuple):
    """A shard that makes no progress, although something of it waits."""

    since: float
    """By the worker's clock."""
    why: object
    """The reason; its text is made when it is told."""


def longest(*found: Standstill | None) -> Standstill | None:
    """Return the standstill that began first; None if there is none."""
    return min((one for one in found if one is not None), key=lambda one: one.since, default=None)


class Warnings:
    """When to warn of shards that stand still: after ``first`` seconds, then ever more rarely."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._told: dict[str, tuple[float, float]] = {}
        """By lease key: since when the shard stands still, and after how many seconds it is told
        again."""

    def due(self, key: str, standstill: Standstill, now: float) -> bool:
        """Return True if the standstill of a shard is to be told now, and note that it is."""
        seconds, told = now - standstill.since, self._told.get(key)
        if seconds < (self._first if told is None else told[1]):
            return False
        self._told[key] = standstill.since, 2 * seconds
        return True

    def over(self, key: str, standstill: Standstill | None, now: float) -> float | None:
        """Return for how long a shard stood still, if that was told and is over; once."""
        told = self._told.get(key)
        if told is None or (standstill is not None and standstill.since == told[0]):
            return None
        del self._told[key]
        return now - told[0]

    def forget(self, key: str) -> None:
        """Forget a shard that is no longer read here."""
        self._told.pop(key, None)
