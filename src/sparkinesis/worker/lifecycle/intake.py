"""From a shard's pages to batches: begins at a position, looks for loss, skips, unpacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.beginning import Unread
from sparkinesis.lease.rules.shard_sync import ShardEnd
from sparkinesis.stream.calls.client import Fetched, shard_of
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.missing_end import TimeAtTip
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, ReadProgress, user_records_done
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.batch import RecordBatch, make_batch
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.start_check import StartCheck, tell
from sparkinesis.worker.lifecycle.starting import beyond, is_behind, later, since
from sparkinesis.worker.retrieval.ahead import FetchedPage, OpenRetrieval, Retrieval
from sparkinesis.worker.retrieval.shard_accounts import ShardAccounts

_log = logging.getLogger(__name__)


class Intake:
    """Used by one thread, that of the shard's consumer, but for `end`."""

    def __init__(
        self,
        shard_id: str,
        hash_range: tuple[int, int] | None,
        settings: ConsumerSettings,
        open_retrieval: OpenRetrieval,
        on_page: Callable[[], None],
    ) -> None:
        self.at_end = False
        """The shard has ended, and every batch of it was taken."""
        self.children: tuple[Shard, ...] = ()
        """The shards that follow, once `at_end`; none if the service told of none."""
        self.seen_ms: int | None = None
        """When the last page was fetched, by the service's clock (epoch ms)."""
        self.millis_behind_latest: int | None = None
        self.at_tip = TimeAtTip(settings.clock)
        self.dropped = 0
        """User records of aggregates that the hash-range filter has dropped."""
        self._bytes = 0
        self._shard_id = shard_id
        self._name = settings.describe_shard(shard_id)
        self._hash_range = hash_range if settings.options.hash_range_filter else None
        self._settings = settings
        self._open_retrieval = open_retrieval
        self._on_page = on_page
        self._lock = threading.Lock()
        self._has_ended = False
        self._retrieval: Retrieval | None = None
        self._memory = ShardAccounts(settings.memory, deaggregate=settings.options.deaggregate)
        self._rest: FetchedPage | None = None
        """What was not taken of a page that is too large for one batch."""
        self._reached = ReadProgress(TRIM_HORIZON)
        """Where the retrieval began, or is to go on should it fail."""
        self._done: ExtendedSequenceNumber | None = None
        self._taken: AfterRecord | None = None
        """Set by a jump to an instant, which may lie before: arrival times are in no order."""
        self._check: StartCheck | None = None
        """For the first page behind a checkpoint, or a long rest; None once that was seen."""
        self._last_arrival_ms: int | None = None
        """That of the last record that was taken or, before, of the checkpoint's (epoch ms)."""

    def begin(
        self,
        start: Position,
        done: ExtendedSequenceNumber | None = None,
        unread: Unread | None = None,
    ) -> None:
        """Go on from ``start``, whatever was before. ``done``: the checkpoint that it was.

        ``unread``: the records that are wanted, where ``start`` is no record's place; None: those
        that are kept.
        """
        self.stop()
        self._reached = ReadProgress(start)
        self._done = done
        self._taken = None
        self._check = None
        if isinstance(start, AfterRecord) or unread is not None:
            self._check = self._new_check(unread)
        if isinstance(start, AfterRecord) and start.arrived_ms is not None:
            self._last_arrival_ms = start.arrived_ms
        self.at_end = False

    @property
    def reached(self) -> Position:
        """The place up to which all was taken, with what is known of arrival times."""
        return self._reached.position

    @property
    def shard_end(self) -> ShardEnd:
        """What was seen at the end of the shard.

        The shards that follow have no record that arrived before the last one here. That the tip
        was seen later says nothing of them: a closed shard has a tip as well.
        """
        last_ms = self._last_arrival_ms
        return ShardEnd(self.seen_ms, None if last_ms is None else last_ms - CLOCK_MARGIN_MS)

    def stop(self) -> None:
        """Fetch no more, until `take` or `begin`."""
        if self._retrieval is not None:
            self._retrieval.stop()
            self._retrieval = None
        if self._rest is not None:
            _release(self._rest)
            self._rest = None

    def close(self) -> None:
        """Fetch no more at all, and give all memory back. The last batch is not used any more."""
        self.end()
        self.stop()
        self._memory.close()

    def end(self) -> None:
        """Fetch no more at all, and let go of the shard at once; for any thread.

        Whoever reads the shard next may have to wait for the connection to be closed.
        """
        with self._lock:
            self._has_ended = True
            retrieval = self._retrieval
        if retrieval is not None:
            retrieval.stop()

    def take_bytes(self) -> int:
        """About how many bytes were taken since the last call; for another thread's statistics."""
        taken, self._bytes = self._bytes, 0
        return taken

    def take(self) -> RecordBatch | None:
        """The next batch, which may be empty; None when no page is there, `at_end`, or after `end`.

        The batch before is not used any more. Raises what fetching or unpacking raised; the next
        call goes on behind what was taken.
        """
        self._memory.done()
        if self.at_end:
            return None
        with self._lock:
            if self._has_ended:
                return None
            if self._retrieval is None:
                self._retrieval = self._open_retrieval(
                    self._shard_id,
                    self._reached.position,
                    self._on_page,
                    inclusive=self._check is not None,
                    memory=self._memory.ahead,
                )
            retrieval = self._retrieval
        before = self._reached, self._check, self._taken
        try:
            return self._take(retrieval)
        except PositionNotFoundError:
            self._tell(
                f"The service does not know the checkpoint {self._reached.position} of "
                f"{self._name} any more: it has expired, or is of another stream. Records may be "
                "lost; going on with the oldest kept."
            )
            self.begin(TRIM_HORIZON)
            return None
        except ShardNotFoundError:
            self.stop()
            # A stream that was deleted may come again, and has shards of the same ids then: their
            # leases must not have ended. Raises StreamNotFoundError if it is not there now.
            shards, _ = self._settings.client.list_shards()
            if any(shard.id == self._shard_id for shard in shards):
                raise
            self._tell(
                f"What was left to read of {self._name} behind {self._reached.position} is lost, "
                "as the shard has expired: it is taken for ended."
            )
            self.at_end = True
            return None
        except BaseException:
            # A page that could not be unpacked is fetched again, or it would be lost.
            self.stop()
            self._reached, self._check, self._taken = before
            self.at_end = False
            raise

    def _take(self, retrieval: Retrieval) -> RecordBatch | None:
        self._rest = self._rest or retrieval.take()
        if self._rest is None:
            return None
        page, rest = self._memory.admit(self._rest)
        self._rest = rest
        batch: RecordBatch | None = None
        try:
            batch = self._accept(page, retrieval.next_from)
        finally:
            if rest is None:
                _release(page)
            if batch is None:
                self._memory.done()
        return batch

    def _accept(self, page: FetchedPage, next_from: float) -> RecordBatch | None:
        fetched = page.fetched
        if self._check is None and self._reached.may_have_missed(fetched):
            self.stop()
            self._check = self._new_check()
            return None
        self.seen_ms = fetched.service_time_ms
        self.millis_behind_latest = fetched.page.millis_behind_latest
        self.at_tip.observe(fetched.page, at_end=page.at_shard_end)
        self._bytes += fetched.size
        records, start = self._judged(fetched), self._reached.position
        if self._taken is not None:
            records, start = beyond(records, self._taken), self._taken
        taken = later(self._taken, self._reached.position)
        if records:
            self._taken = None  # what follows lies behind these
            self._last_arrival_ms = records[-1].arrived_ms
        self._reached = self._reached.after(fetched)
        # By now, not as of the fetch: a slow processor lets pages grow old.
        now = self._settings.clock()
        waited_ms = round((now - page.since) * 1000)
        bound_ms = self._settings.skip_before(fetched.service_time_ms + waited_ms)
        if bound_ms is not None:
            # Until another retrieval may begin, this one comes nearer to the bound.
            if now >= next_from and is_behind(records, bound_ms) and not page.at_shard_end:
                _log.info(
                    "Going on at %d (epoch ms), as skip_older_than says, in %s",
                    bound_ms,
                    self._name,
                )
                self.begin(AtTimestamp(bound_ms), self._done)
                self._taken = taken
                return None
            records = since(records, bound_ms)
        if page.at_shard_end:
            self.stop()
            self.at_end = True
            self.children = tuple(shard_of(child) for child in fetched.page.child_shards or ())
        return self._unpacked(records, start, fetched.service_time_ms)

    def _new_check(self, unread: Unread | None = None) -> StartCheck:
        return StartCheck(self._shard_id, self._reached.position, self._settings, unread)

    def _tell(self, text: str) -> None:
        tell(self._settings, self._shard_id, text)

    def _judged(self, fetched: Fetched) -> Sequence[Record]:
        """The records behind the start, if the first page shows that none are missing."""
        if self._check is None:
            return fetched.page.records
        records = self._check.records(fetched)
        if records is None:
            return ()
        self._check = None
        return records

    def _unpacked(self, records: Sequence[Record], start: Position, fetched_ms: int) -> RecordBatch:
        options = self._settings.options
        batch, dropped = make_batch(
            records,
            stream=self._settings.client.address.name,
            shard_id=self._shard_id,
            millis_behind_latest=self.millis_behind_latest,
            fetched_ms=fetched_ms,
            deaggregate=options.deaggregate,
            hash_range=self._hash_range,
        )
        self._memory.unpacked(records, batch)
        if dropped:
            self.dropped += dropped
            _log.info(
                "Dropped %d user records of aggregates outside of the hash range of %s",
                dropped,
                self._name,
            )
        resumes = self._done is not None and records and user_records_done(records[0], start)
        # A record that is not unpacked cannot be delivered in part; what is left of it counts.
        if resumes and options.deaggregate:
            assert self._done is not None
            batch = batch.after(self._done)
        return batch


def _release(page: FetchedPage) -> None:
    if page.hold is not None:
        page.hold.release()
