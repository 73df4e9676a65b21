"""The start of reading a shard: its checkpoint, or ``skip_older_than``'s bound, and a check there.

A resumed shard is read AT the checkpoint's record, which may hold user records that are not yet
processed (KCL section "ExtendedSequenceNumber"); the processed ones are dropped. The check detects
records that expired before they were read; every loss is logged and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import WantedRecords, wanted_records
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    advanced,
)
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS, RetentionCheck
from sparkinesis.worker.lifecycle.settings import ConsumerSettings


def start_of(
    lease: Lease, initial: Position, now_ms: int, bound_ms: int | None, *, deaggregate: bool
) -> tuple[Position, WantedRecords | None]:
    """Return the position after the lease's checkpoint, and the records wanted from there.

    None instead of the records: those after the checkpoint's own. bound_ms: the bound of
    `skip_older_than` (epoch ms), if any. The others: see `start_position`.
    """
    start = start_position(lease, initial, now_ms, deaggregate=deaggregate)
    if isinstance(start, AfterRecord):
        return start, None  # whether it lies before the bound is not known
    unread = wanted_records(lease, initial)
    if bound_ms is not None:
        unread = unread.not_before(bound_ms)
    return advanced(start, bound_ms), unread


def start_position(lease: Lease, initial: Position, now_ms: int, *, deaggregate: bool) -> Position:
    """Return the position of ``lease``. ``now_ms``: the service's clock.

    A sentinel without an instant was written by a KCL. LATEST means from now on, and AT_TIMESTAMP
    the instant in the application's configuration. If the configuration has no instant, the shard
    is read from its start, so that nothing is lost.
    """
    position = lease.position()
    if position is LATEST:
        return AtTimestamp(now_ms)
    if position is None:
        return initial if isinstance(initial, AtTimestamp) else TRIM_HORIZON
    if isinstance(position, AfterRecord) and not deaggregate and not position.sub_sequence_number:
        return replace(position, sub_sequence_number=None)
    return position


class StartCheck:
    """Checks that no record is missing between a position and the first page after it.

    For one thread. A page that could not be used is checked again; a loss is reported once.
    """

    def __init__(
        self,
        shard_id: str,
        start: Position,
        settings: ConsumerSettings,
        unread: WantedRecords | None = None,
    ) -> None:
        """``unread``: the records that are wanted, where ``start`` is not a record's position."""
        self._shard_id = shard_id
        self._start = start
        self._settings = settings
        if unread is None and isinstance(start, AtTimestamp):
            unread = WantedRecords(start)
        self._unread = unread
        self._retention = RetentionCheck(
            settings.client, on_loss=self._report, describe=settings.summary
        )
        self._is_reported = False

    def records_after(self, fetched: Fetched) -> Sequence[Record] | None:
        """Return the records after the position, from a page that was read AT the position.

        Returns None if the page does not show whether records are missing: check the next page.
        """
        if isinstance(self._start, AfterRecord):
            # Records that `skip_older_than` skips do not count as lost.
            bound_ms = self._settings.skip_before(fetched.service_time_ms)
            start = advanced(self._start, bound_ms)
            return self._retention.check_start(self._shard_id, start, fetched)
        if self._unread is not None and not self._is_reported:
            self._check_age(self._unread, fetched.service_time_ms)
        return fetched.page.records

    def _check_age(self, unread: WantedRecords, now_ms: int) -> None:
        if not unread.may_have_lost(now_ms, SHORTEST_RETENTION_MS):
            return
        # Only now are calls for the stream's retention period and age worth their cost.
        stream = self._settings.summary()
        if (
            unread.may_have_lost(now_ms, stream.retention_ms)
            and stream.created_ms < now_ms - stream.retention_ms
            and self._is_shard_old()
        ):
            self._retention.report_loss(self._shard_id, self._start, stream.retention_ms)

    def _is_shard_old(self) -> bool:
        """Return True if the shard is older than the oldest record kept, or its age is unknown."""
        try:
            shards, _ = self._settings.client.list_shards(at=TRIM_HORIZON)
        except ServiceError:
            return True
        return any(shard.id == self._shard_id for shard in shards)

    def _report(self, text: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._settings.reporter(self._shard_id).lost(
                f"{text} Resuming with the oldest record kept."
            )
