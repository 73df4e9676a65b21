"""Records that expired before they were read: looked for where reading begins, told and counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sparkinesis.errors import DataLossError, ServiceError
from sparkinesis.lease.rules.beginning import Unread
from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    advanced,
)
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS, RetentionCheck
from sparkinesis.worker.lifecycle.settings import ConsumerSettings

_log = logging.getLogger(__name__)


def tell(settings: ConsumerSettings, shard_id: str, text: str) -> None:
    """Log that records of a shard are lost, and count it with the worker's failures."""
    _log.warning("%s", text)
    what = f"Records expired before they were read, on {settings.describe_shard(shard_id)}"
    settings.failures.note(shard_id, what, DataLossError(text))


class StartCheck:
    """The look at the first page behind a place in a shard. Used by one thread.

    A place may be looked at again, where its page could not be used: what is lost is told once.
    """

    def __init__(
        self,
        shard_id: str,
        start: Position,
        settings: ConsumerSettings,
        unread: Unread | None = None,
    ) -> None:
        """``unread``: which records are wanted of a shard whose ``start`` is no record's place."""
        self._shard_id = shard_id
        self._start = start
        self._settings = settings
        if unread is None and isinstance(start, AtTimestamp):
            unread = Unread(start)
        self._unread = unread
        self._retention = RetentionCheck(
            settings.client, on_loss=self._tell, describe=settings.summary
        )
        self._is_told = False

    def records(self, fetched: Fetched) -> Sequence[Record] | None:
        """The records of ``fetched``, a page read AT the place, that come after it.

        None: the page holds nothing yet to judge by, so look at the next one.
        """
        if isinstance(self._start, AfterRecord):
            start = self._wanted(self._start, fetched.service_time_ms)
            return self._retention.check_start(self._shard_id, start, fetched)
        if self._unread is not None and not self._is_told:
            self._look(self._unread, fetched.service_time_ms)
        return fetched.page.records

    def _wanted(self, start: Position, now_ms: int) -> Position:
        """The place, as if nothing had come behind it that ``skip_older_than`` passes over."""
        return advanced(start, self._settings.skip_before(now_ms))

    def _look(self, unread: Unread, now_ms: int) -> None:
        if not unread.may_have_lost(now_ms, SHORTEST_RETENTION_MS):
            return
        # Worth a call to know what this stream's retention period is now, and its age.
        stream = self._settings.summary()
        if (
            unread.may_have_lost(now_ms, stream.retention_ms)
            and stream.created_ms < now_ms - stream.retention_ms
            and self._is_old()
        ):
            self._retention.report_loss(self._shard_id, self._start, stream.retention_ms)

    def _is_old(self) -> bool:
        """Whether the shard was there before the oldest record that is kept, as far as is known."""
        try:
            shards, _ = self._settings.client.list_shards(at=TRIM_HORIZON)
        except ServiceError:
            return True
        return any(shard.id == self._shard_id for shard in shards)

    def _tell(self, text: str) -> None:
        if not self._is_told:
            self._is_told = True
            tell(self._settings, self._shard_id, f"{text} Going on with the oldest record kept.")
