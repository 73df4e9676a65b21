"""The place in a shard that an instant leads to: the last record before the instant.

A lease at AT_TIMESTAMP means nothing to a Java KCL that is not configured to begin at an instant:
it never reads the shard. LATEST means another moment there at each start. A checkpoint behind a
record means the same to everybody: what follows that record. Kinesis has no call that reads
backwards, so the record is looked for with a few calls, farther and farther back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sparkinesis.errors import ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Page, Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL

_SAMPLE = 1_000
"""Records to ask for at a look, which often reach from before the instant to behind it."""
_CLOSE_MS = 1_000
"""How far before the instant the first look begins; a stretch that is not halved once more."""
_STRIDE = 8
"""By how much farther back each look begins than the one before."""
_APART = 0.25
"""Seconds between two probes: a shard allows five GetRecords calls a second, for all readers."""


def checkpoint_at(
    client: StreamClient, shard_id: str, instant_ms: int, wait: Callable[[float], object]
) -> ExtendedSequenceNumber:
    """The checkpoint behind which a shard goes on with the first record since ``instant_ms``.

    That is the last user record of the record before that one, or of the shard's last record where
    none has arrived since. TRIM_HORIZON where no record is older than the instant, also for a shard
    that is gone. As for an iterator AT_TIMESTAMP, the order is that of the shard: a record behind
    the first one may be older than the instant.

    ``wait``: sleeps for so many seconds, between two calls. Raises service errors,
    `AccessDeniedError` among them: `GetShardIterator` and `GetRecords` are called.
    """
    try:
        before = _last_before(_ShardProbe(client, shard_id, instant_ms, _Pacer(wait)))
    except ShardNotFoundError:
        before = None
    if before is None:
        return ExtendedSequenceNumber.of(TRIM_HORIZON)
    user_records = len(deaggregate([before]).data)
    return ExtendedSequenceNumber(before.sequence_number, user_records - 1)


def _last_before(probe: _ShardProbe) -> Record | None:
    """The record before the first one since the instant: None where that is the oldest."""
    oldest = probe.probe(TRIM_HORIZON, 1).last
    if oldest is None:
        return None
    oldest_ms, reach, near = _arrival_ms(oldest), _CLOSE_MS, probe.instant_ms
    while True:
        far = max(oldest_ms, probe.instant_ms - reach)
        seen = probe.probe(AtTimestamp(far))
        if seen.last is not None or far == oldest_ms:
            break
        near, reach = far, reach * _STRIDE
    while not seen.is_last and near - far > _CLOSE_MS:
        middle = (near + far) // 2
        nearer = probe.probe(AtTimestamp(middle))
        if nearer.last is None:
            near = middle
        else:
            far, seen = middle, nearer
    while not seen.is_last and seen.last is not None:
        behind = probe.probe(AfterRecord(seen.last.sequence_number), MAX_RECORDS_PER_CALL)
        seen = behind if behind.last is not None else _Probed(seen.last, is_last=True)
    return seen.last


@dataclass(frozen=True, slots=True)
class _Probed:
    last: Record | None
    """The last record of a page before one that arrived since the instant."""
    is_last: bool
    """Such a record follows, or none at all."""


class _Pacer(AbstractContextManager[None]):
    """Lets calls, and what is tried again of them, begin some time after the one before."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        self._wait = wait
        self._has_begun = False

    def __enter__(self) -> None:
        if self._has_begun:
            self._wait(_APART)
        self._has_begun = True

    def __exit__(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _ShardProbe:
    """Looks at one shard, one after the other."""

    client: StreamClient
    shard_id: str
    instant_ms: int
    pacer: _Pacer

    def probe(self, position: Position, limit: int = _SAMPLE) -> _Probed:
        """The first page from ``position`` on that has records."""
        iterator: str | None = self.client.shard_iterator(self.shard_id, position)
        while iterator is not None:
            page = self._fetch(iterator, limit)
            last: Record | None = None
            for record in page.records:
                if not _is_older(record, self.instant_ms):
                    return _Probed(last, is_last=True)
                last = record
            is_end = not page.millis_behind_latest or page.next_shard_iterator is None
            if page.records or is_end:
                return _Probed(last, is_last=is_end)
            iterator = page.next_shard_iterator
        return _Probed(None, is_last=True)

    def _fetch(self, iterator: str, limit: int) -> Page:
        return self.client.get_records(self.shard_id, iterator, limit, self.pacer).page


def _is_older(record: Record, instant_ms: int) -> bool:
    """Whether a record arrived before an instant. One of unknown arrival is rather read again."""
    return record.approximate_arrival_timestamp is not None and _arrival_ms(record) < instant_ms


def _arrival_ms(record: Record) -> int:
    return round((record.approximate_arrival_timestamp or 0.0) * 1000)
