"""Searches a shard for the last record before an instant, to checkpoint that record.

A Java KCL that is not configured to start at an instant never reads a shard whose lease is at
AT_TIMESTAMP, and takes LATEST as the time of each start. A checkpoint at a record means the same
to every KCL: resume after that record. Kinesis has no call that reads backwards, so the search
takes a few calls, each farther back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from sparkinesis.errors import ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.kpl.objects import last_sub_sequence_number
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position

_SAMPLE = 1_000
"""Records to ask for in a probe; they often reach from before the instant to after it."""
_CLOSE_MS = 1_000
"""The distance of the first probe from the instant; shorter stretches are not bisected."""
_STRIDE = 8
"""The factor by which each probe begins farther back than the previous one."""
_APART = 0.25
"""Seconds between two probes: a shard allows five GetRecords calls a second, for all readers."""


def checkpoint_at(
    client: StreamClient, shard_id: str, instant_ms: int, wait: Callable[[float], object]
) -> ExtendedSequenceNumber:
    """Return the checkpoint after which a shard resumes with the first record since ``instant_ms``.

    It is the last user record of the record before that one, or of the shard's last record if none
    has arrived since. It is TRIM_HORIZON if no record is older than the instant, and for a shard
    that does not exist. As for an iterator AT_TIMESTAMP, the order is that of the shard: a record
    after the first one may be older than the instant.

    ``wait``: sleeps between two calls, for the seconds that it is given. Raises service errors,
    `AccessDeniedError` among them: `GetShardIterator` and `GetRecords` are called.
    """
    try:
        before = _last_before(_ShardProbe(client, shard_id, instant_ms, _Pacer(wait)))
    except ShardNotFoundError:
        before = None
    if before is None:
        return ExtendedSequenceNumber.of(TRIM_HORIZON)
    return ExtendedSequenceNumber(before.sequence_number, last_sub_sequence_number(before))


def _last_before(probe: _ShardProbe) -> Record | None:
    """Return the record before the first one since the instant; None if no record is older."""
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


class _Probed(msgspec.Struct, frozen=True):
    last: Record | None
    """The last record of a page that arrived before the instant."""
    is_last: bool
    """True if a record since the instant follows, or no record at all."""


class _Pacer(AbstractContextManager[None]):
    """Delays each call, retries included, after the previous one."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        self._wait = wait
        self._has_begun = False

    def __enter__(self) -> None:
        if self._has_begun:
            self._wait(_APART)
        self._has_begun = True

    def __exit__(self, *_: object) -> None:
        return None


class _ShardProbe(msgspec.Struct, frozen=True):
    """Reads pages of one shard, one after the other."""

    client: StreamClient
    shard_id: str
    instant_ms: int
    pacer: _Pacer

    def probe(self, position: Position, limit: int = _SAMPLE) -> _Probed:
        """Read the first page from ``position`` on that has records."""
        iterator: str | None = self.client.shard_iterator(self.shard_id, position)
        while iterator is not None:
            fetched = self.client.get_records(self.shard_id, iterator, limit, self.pacer)
            page = fetched.page
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


def _is_older(record: Record, instant_ms: int) -> bool:
    """Return True if a record arrived before an instant; unknown arrivals are read again."""
    return record.approximate_arrival_timestamp is not None and _arrival_ms(record) < instant_ms


def _arrival_ms(record: Record) -> int:
    return round((record.approximate_arrival_timestamp or 0.0) * 1000)
