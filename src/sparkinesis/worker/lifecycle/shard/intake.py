"""Intake: makes batches of a shard's pages, the only way of records to a record processor.

`Intake.take` makes a batch: it takes the next page, as much of it as there is memory for, selects
the records that are to be delivered, and makes a batch of them, which unpacks aggregates when it is
asked for their user records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.page import Record, shard_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, Position
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, ReadProgress
from sparkinesis.stream.reading.shard_end import TimeAtTip
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.batches.page_rows import Habit
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.selection import ShardProgress, is_beyond, select, within
from sparkinesis.worker.lifecycle.shard.starting import StartCheck
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchedPage, FetchRequest, OpenRetrieval
from sparkinesis.worker.retrieval.shard_accounts import ShardAccounts
from sparkinesis.worker.retrieval.step_pool import Work

_log = logging.getLogger(__name__)

_KEPT_FOR = 60.0
"""Seconds for which nothing is dropped, nor the service asked again, if the stream was found to
distribute records itself."""


class Intake:
    """The batches of one shard. For the thread of the shard's consumer, unless a method says so."""

    def __init__(
        self,
        shard_id: str,
        reshard_range: tuple[int, int] | None,
        settings: ConsumerSettings,
        open_retrieval: OpenRetrieval,
        on_page: Callable[[Work], None],
        *,
        mark: StreamMark | None = None,
    ) -> None:
        """``reshard_range``: the hash keys of a shard that came of a reshard; None: another one.

        ``mark``: the application's only stream, as the lease names it.
        """
        self.at_end = False
        """True once the shard, or the range of a replay, has ended and its last batch was taken."""
        self.why_at_end = ShutdownReason.SHARD_END
        """REQUESTED: the range has ended, `at_end`, and not the shard."""
        self.rest_is_lost = False
        """True once the shard has expired before it was read to its end."""
        self.children: tuple[Shard, ...] = ()
        """The child shards, once `at_end`; empty if the service named none."""
        self.millis_behind_latest: int | None = None
        """The service's figure at the last page that was taken; None before the first one."""
        self.oldest_at: float | None = None
        """The arrival of the first record of the last batch, by the worker's clock; None: it has no
        record."""
        self.time_at_tip = TimeAtTip(settings.clock)
        self.dropped = 0
        """User records of aggregates that the hash-range filter has dropped."""
        self._shard_id = shard_id
        self._name = settings.describe_shard(shard_id)
        self._hash_range = reshard_range if settings.options.hash_range_filter else None
        self._filters_from = 0.0
        """The time until which the hash-range filter drops nothing, by the worker's clock."""
        self._filters_before = 0.0
        """The time before which a page was fetched, by the worker's clock, if the filter may drop
        of it without another question."""
        self._settings = settings
        self._open_retrieval = open_retrieval
        self._on_page = on_page
        self._mark = mark
        self._lock = threading.Lock()
        self._is_closed = False
        self.paused_since: float | None = None
        """The time of `pause`, by the worker's clock; None after `resume`."""
        self._retrieval: FetchAhead | None = None
        self._accounts = ShardAccounts(settings.memory, deaggregate=settings.options.deaggregate)
        self._habit = Habit()
        self._rest: FetchedPage | None = None
        """The part of a page that did not fit into the memory of one batch."""
        self._is_confirmed: bool
        """True once this retrieval has fetched a record, and the stream was still the same then."""
        self._progress = self._taken_from = ShardProgress(ReadProgress(TRIM_HORIZON))
        self._bytes = 0
        self._heard_at: float | None = None
        """The time of the last page or, before the first one, of the attempt to read."""
        self._fetched_ms: int | None = None
        """The time of the last fetched page, by the service's clock (epoch ms)."""

    def begin(
        self,
        start: Position,
        unread: WantedRecords | None = None,
    ) -> None:
        """Read from ``start`` on, regardless of what was read before.

        unread: the records that are wanted, where ``start`` is not the position of a record; None:
        all records that the stream still keeps.
        """
        self.stop()
        self.wait_for_page()
        check = isinstance(start, AfterRecord) or unread is not None
        arrived_ms = start.arrived_ms if isinstance(start, AfterRecord) else None
        self._progress = ShardProgress(
            ReadProgress(start),
            StartCheck(self._shard_id, start, self._settings, unread) if check else None,
            last_arrival_ms=self._progress.last_arrival_ms if arrived_ms is None else arrived_ms,
        )
        self.at_end = False

    def wait_for_page(self) -> None:
        """Note that the shard is to be read from now on, even if nothing of it is read yet."""
        self.millis_behind_latest = None
        if self._heard_at is None:
            self._heard_at = self._settings.clock()

    @property
    def heard_at(self) -> float | None:
        """The time since when no page has come; None: the shard is not to be read. For any thread.

        By the worker's clock.
        """
        retrieval = self._retrieval
        times = (self._heard_at, None if retrieval is None else retrieval.heard_at)
        return max((one for one in times if one is not None), default=None)

    @property
    def waiting_since(self) -> float | None:
        """The arrival of the first record that is fetched and not in a batch. For any thread."""
        rest, retrieval = self._rest, self._retrieval
        if rest is not None:
            return rest.arrival(rest.records[0])
        return None if retrieval is None else retrieval.oldest_at

    @property
    def reached(self) -> Position:
        """The position up to which all records were taken, with the known arrival times."""
        return self._progress.read_up_to.position

    @property
    def shard_end(self) -> ShardEnd:
        """The bounds, at the end of the shard, for the times at which its children begin.

        No record of a child arrived before the last record of this shard. The time at which the
        reader reached the tip says nothing of the children: a closed shard has a tip as well.
        """
        last_ms = self._progress.last_arrival_ms
        return ShardEnd(self._fetched_ms, None if last_ms is None else last_ms - CLOCK_MARGIN_MS)

    def stop(self) -> None:
        """Stop fetching until the next `take`; pages that were not taken are fetched again."""
        self.time_at_tip.since = None  # who does not look is not at the tip
        if self._retrieval is not None:
            self._heard_at = self.heard_at
            self._retrieval.stop()
            self._retrieval = None
        if self._rest is not None:
            self._rest.release()
            self._rest = None

    def close(self) -> None:
        """Stop fetching permanently and release all memory. No batch must be in use."""
        self.end_reading()
        self.stop()
        self._accounts.close()

    def end_reading(self) -> None:
        """Stop fetching permanently and release the shard at once. For any thread.

        The shard's next reader may have to wait until this connection is closed.
        """
        with self._lock:
            self._is_closed = True
            retrieval = self._retrieval
        if retrieval is not None:
            retrieval.stop()

    def take_again(self) -> None:
        """Fetch what the last `take` returned once more."""
        self.stop()
        self._progress = self._taken_from
        self.at_end = False

    def pause(self) -> None:
        """Stop fetching, with an open subscription too, until `resume`. For any thread."""
        with self._lock:
            if self.paused_since is None:
                self.paused_since = self._settings.clock()
            retrieval = self._retrieval
        if retrieval is not None:
            retrieval.stop()

    def resume(self) -> None:
        """Let `take` fetch again. For any thread."""
        with self._lock:
            self.paused_since = None

    @property
    def is_paused(self) -> bool:
        """True from `pause` to `resume`. For any thread."""
        return self.paused_since is not None

    def rest(self, in_use: int) -> None:
        """Give back the memory of pages and batches, but for those ``in_use``; see `take`."""
        self.stop()
        self._accounts.release_batches(in_use)

    @property
    def bytes_held(self) -> int:
        """The bytes of records that wait or are being processed. For any thread."""
        return self._accounts.held

    def take_byte_count(self) -> int:
        """Return about how many bytes were taken since the last call, for lease statistics.

        For one other thread.
        """
        taken, self._bytes = self._bytes, 0
        return taken

    def take(self, in_use: int = 0) -> RecordBatch | None:
        """Return the next batch, which may be empty.

        in_use: how many of the last batches with records are still in use; they keep their memory.

        Returns None if no page is ready, `at_end`, while paused, and after `end_reading`; also if
        there is no memory beside that of the batches in use. Raises the errors of fetching and of
        making a batch; the next call resumes after the last batch.
        """
        self._accounts.release_batches(in_use)
        retrieval = None if self.at_end else self._running_retrieval()
        if retrieval is None:
            return None
        before = self._taken_from = self._progress
        try:
            page = self._next_page(retrieval)
            if page is None:
                return None
            batch: RecordBatch | None = None
            try:
                self._require_same_stream(page)
                records = self._select(page, retrieval.next_from)
                if records is not None:
                    batch = self._make_batch(page, records, before.deliver_after)
            finally:
                if self._rest is None:
                    page.release()
                if not batch:
                    self._accounts.release_last(in_use)
            return batch
        except PositionNotFoundError:
            self.stop()
            self._settings.require_same_stream(self._settings.clock(), self._mark)
            self._settings.reporter(self._shard_id).lost(
                f"The service, asked twice, does not know the checkpoint {self.reached} of "
                f"{self._name}: it has expired, or belongs to another stream. Records may be lost. "
                "Resuming at the oldest record kept."
            )
            self.begin(TRIM_HORIZON)
        except ShardNotFoundError:
            self.stop()
            self._settings.require_same_stream(self._settings.clock(), self._mark)
            # A stream that was deleted may be created again, with shards of the same ids: their
            # leases must not have ended. Raises StreamNotFoundError while there is no stream.
            shards, _ = self._settings.client.list_shards()
            if any(shard.id == self._shard_id for shard in shards):
                raise
            self._settings.reporter(self._shard_id).lost(
                f"The rest of {self._name} after {self.reached} is lost: the shard has expired, "
                "and is treated as ended."
            )
            self.at_end = self.rest_is_lost = True
        except BaseException:
            # The page is fetched again, or its records would be lost.
            self.stop()
            self._progress = before
            self.at_end = False
            raise
        return None

    def _running_retrieval(self) -> FetchAhead | None:
        """Return the retrieval; open one if necessary. Return None if nothing is to be fetched."""
        if self._retrieval is not None and self._retrieval.is_stopped:
            self.stop()  # by `pause`, however short the pause was
        with self._lock:
            if self._is_closed or self.is_paused:
                return None
            if self._retrieval is None:
                self._is_confirmed = False
                self._retrieval = self._open_retrieval(
                    FetchRequest(
                        self._shard_id,
                        self._progress.read_up_to.position,
                        inclusive=self._progress.start_check is not None,
                        memory=self._accounts.pages,
                        on_page=self._on_page,
                        pool=self._settings.fetchers,
                        announce_silence=self._settings.options.call_even_for_empty_batches,
                    )
                )
            return self._retrieval

    def _require_same_stream(self, page: FetchedPage) -> None:
        """Raise `StreamNotFoundError` if the first records are those of a later stream of the name.

        Only an iterator that was made by the stream's name may lead there: its pages lead no
        further. Of an application's only stream, the records would be read again once its leases
        are made anew: that is cheaper than a call for each shard that begins.
        """
        if (page.records or page.at_shard_end) and not self._is_confirmed:
            self._settings.require_same_stream(page.fetched_at, None)
            self._is_confirmed = True

    # --- the making of a batch, in this order

    def _next_page(self, retrieval: FetchAhead) -> FetchedPage | None:
        """Return as much of the next page as a batch has memory for; None if nothing is ready."""
        self._rest = self._rest or retrieval.take()
        if self._rest is None:
            return None
        page, self._rest = self._accounts.split(self._rest)
        return page

    def _select(self, page: FetchedPage, next_from: float) -> Sequence[Record] | None:
        """Return the page's records to deliver, and advance to the end of the page.

        Returns None if reading restarts instead: AT the last record, to check if records expired
        during a long pause, or at the bound of ``skip_older_than``.
        """
        settings, progress = self._settings, self._progress
        check, records = progress.start_check, page.records
        if check is None and progress.read_up_to.may_have_missed(page.fetched):
            self.stop()
            doubt = StartCheck(self._shard_id, progress.read_up_to.position, settings)
            self._progress = replace(progress, start_check=doubt)
            return None
        found = records if check is None else check.records_after(page.fetched)
        self._fetched_ms = page.service_time_ms
        self.millis_behind_latest = page.fetched.page.millis_behind_latest
        self.time_at_tip.observe(page.fetched.page, at_end=page.at_shard_end)
        self._bytes += page.fetched.size
        # Use the present time, not the time of the fetch: pages age while a slow processor works.
        now = settings.clock()
        waited_ms = round((now - page.fetched_at) * 1000)
        selection = select(
            progress,
            page.fetched,
            found,
            settings.skip_before(page.service_time_ms + waited_ms),
            may_jump=now >= next_from and not page.at_shard_end,
        )
        self._progress = selection.progress
        if selection.jump_to_ms is not None:
            self.stop()
            settings.reporter(self._shard_id).skipping(selection.jump_to_ms)
            return None
        if settings.reads is not None and is_beyond(page.fetched, settings.reads):
            self.stop()
            self.at_end, self.why_at_end = True, ShutdownReason.REQUESTED
        elif page.at_shard_end:
            self.stop()
            self.at_end, self.why_at_end = True, ShutdownReason.SHARD_END
            self.children = tuple(shard_of(child) for child in page.fetched.page.child_shards or ())
        if settings.reads is not None:
            return within(selection.records, settings.reads)
        return selection.records

    def _make_batch(
        self, page: FetchedPage, records: Sequence[Record], position: Position
    ) -> RecordBatch:
        """Return the batch of the records, without user records that are done at ``position``."""
        options = self._settings.options
        make = partial(
            make_batch,
            records,
            stream=self._settings.client.address.name,
            shard_id=self._shard_id,
            millis_behind_latest=page.fetched.page.millis_behind_latest,
            fetched_ms=page.service_time_ms,
            deaggregate=options.deaggregate,
            habit=self._habit,
        )
        now = self._settings.clock()
        batch, dropped = make(hash_range=self._hash_range if now >= self._filters_from else None)
        # Ask behind the fetch: the strategy may have changed a moment before it.
        if dropped and page.fetched_at >= self._filters_before:
            if self._settings.client.describe().distributes_records:
                # A KPL may give up before each user record has come to the shard of its key.
                self._filters_from = now + _KEPT_FOR
                batch, dropped = make()
            else:
                self._filters_before = now
        self.oldest_at = page.arrival(records[0]) if records else None
        self._accounts.measure_batch(records)
        if dropped:
            self.dropped += dropped
            self._settings.measures(self._shard_id).filtered(dropped)
            _log.info(
                "Dropped %d user records of aggregates outside of the hash range of %s",
                dropped,
                self._name,
            )
        # A record that is not unpacked cannot be delivered in part: it is delivered again.
        if (
            options.deaggregate
            and isinstance(position, AfterRecord)
            and position.sub_sequence_number is not None
        ):
            return batch.after(ExtendedSequenceNumber.of(position))
        return batch
