"""Batches of a shard's pages: the only way of records to a record processor.

`Batcher.take` takes the next page, as much of it as there is memory for, selects the records that
are to be delivered, and makes a batch of them, which unpacks aggregates when it is asked for their
user records.
"""

# Reading a shard fails in the middle of all of this: the fetch, the check of the first records, a
# question to the service, the memory of a batch. Whatever fails, `take` leaves the shard as it was
# before: `_progress` is set back, and the page is fetched again. A page that was taken and could
# not be unpacked was lost once, and the next one was delivered.
#
# So `_progress`, and not the fetcher, says where the shard is read next. A fetcher may be ahead by
# the pages that wait; it is dropped and replaced at any time (an error, a pause, a reset, a jump to
# the bound of `skip_older_than`), and nothing but those pages is fetched twice.
#
# Two errors of the service say that a position or a shard is gone. Both are also what the shards of
# a stream that was deleted and made anew say, with the same ids: their leases must not end, nor be
# read from the start. So the service is asked first whether it is the same stream.

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.stream.page import Record, shard_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, Position
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, ReadProgress
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.batches.page_rows import Habit
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.fetching import ShardFetching
from sparkinesis.worker.lifecycle.shard.lag import LastPage
from sparkinesis.worker.lifecycle.shard.selection import (
    HashRangeFilter,
    ShardProgress,
    is_beyond,
    select,
    within,
)
from sparkinesis.worker.lifecycle.shard.starting import StartCheck
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.retrieval.ahead import FetchAhead
from sparkinesis.worker.retrieval.batch_cutter import BatchCutter
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage

_log = logging.getLogger(__name__)


class ReadEnd(msgspec.Struct, frozen=True):
    """The end of what is read of a shard: its last batch was taken."""

    reason: ShutdownReason = ShutdownReason.SHARD_END
    """REQUESTED: the range of a replay has ended, and not the shard."""
    children: tuple[Shard, ...] = ()
    """The child shards; empty if the service named none."""
    rest_is_lost: bool = False
    """True if the shard has expired before it was read to its end."""


class Batcher:
    """The batches of one shard. For the thread of the shard's consumer, unless a method says so."""

    def __init__(
        self,
        fetching: ShardFetching,
        settings: ConsumerSettings,
        reshard_range: tuple[int, int] | None,
    ) -> None:
        """``reshard_range``: the hash keys of a shard that came of a reshard; None: another one."""
        self.end: ReadEnd | None = None
        """The end of the shard, or of a replay's range, once its last batch was taken."""
        self.last_page = LastPage(settings.clock)
        self.oldest_at: float | None = None
        """The arrival of the first record of the last batch, by the worker's clock; None: it has no
        record."""
        self._fetching = fetching
        self._report = settings.reporter(fetching.shard_id)
        self._settings = settings
        self._cutter = BatchCutter(settings.memory, deaggregate=settings.options.deaggregate)
        filters = settings.options.hash_range_filter
        self._filter = HashRangeFilter(settings, reshard_range if filters else None)
        self._habit = Habit()
        self._progress = self._taken_from = ShardProgress(ReadProgress(TRIM_HORIZON))
        self._bytes = 0

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
        bound_ms = None if last_ms is None else last_ms - CLOCK_MARGIN_MS
        return ShardEnd(self.last_page.fetched_ms, bound_ms)

    def begin(self, start: Position, unread: WantedRecords | None = None) -> None:
        """Read from ``start`` on, regardless of what was read before.

        unread: the records that are wanted, where ``start`` is not the position of a record; None:
        all records that the stream still keeps.
        """
        self.stop()
        self.expect_page()
        check = isinstance(start, AfterRecord) or unread is not None
        arrived_ms = start.arrived_ms if isinstance(start, AfterRecord) else None
        self._progress = ShardProgress(
            ReadProgress(start),
            StartCheck(self._fetching.shard_id, start, self._settings, unread) if check else None,
            last_arrival_ms=self._progress.last_arrival_ms if arrived_ms is None else arrived_ms,
        )
        self.end = None

    def expect_page(self) -> None:
        """Note that the shard is to be read from now on, even if nothing of it is read yet."""
        self.last_page.millis_behind_latest = None
        self._fetching.expect_page()

    def take(self, in_use: int = 0) -> RecordBatch | None:
        """Return the next batch, which may be empty.

        in_use: how many of the last batches with records are still in use; they keep their memory.

        Returns None if no page is ready, after the `end`, while paused, and once fetching has
        ended; also if there is no memory beside that of the batches in use. Raises the errors of
        fetching and of making a batch; the next call resumes after the last batch.
        """
        self._cutter.release_batches(in_use)
        fetcher = None if self.end is not None else self._running_fetcher()
        if fetcher is None:
            return None
        before = self._taken_from = self._progress
        try:
            part = self._cutter.next_part(fetcher.take)
            if part is None:
                return None
            batch: RecordBatch | None = None
            try:
                self._fetching.require_same_stream(part)
                records = self._select(part, fetcher.next_from)
                if records is not None:
                    batch = self._make_batch(part, records, before.deliver_after)
            finally:
                if self._cutter.rest_of_page is None:
                    part.release()
                if not batch:
                    self._cutter.release_last(in_use)
            return batch
        except PositionNotFoundError:
            self.stop()
            self._fetching.require_same_stream_now()
            self._report.lost(
                f"The service, asked twice, does not know the checkpoint {self.reached} of "
                f"{self._report.place}: it has expired, or belongs to another stream. Records may "
                "be lost. Resuming at the oldest record kept."
            )
            self.begin(TRIM_HORIZON)
        except ShardNotFoundError:
            self.stop()
            self._fetching.require_same_stream_now()
            # Raises StreamNotFoundError while there is no stream.
            shards, _ = self._settings.client.list_shards()
            if any(shard.id == self._fetching.shard_id for shard in shards):
                raise
            self._report.lost(
                f"The rest of {self._report.place} after {self.reached} is lost: the shard has "
                "expired, and is treated as ended."
            )
            self.end = ReadEnd(rest_is_lost=True)
        except BaseException:
            # The page is fetched again, or its records would be lost.
            self.stop()
            self._progress = before
            self.end = None
            raise
        return None

    def take_again(self) -> None:
        """Fetch what the last `take` returned once more."""
        self.stop()
        self._progress = self._taken_from
        self.end = None

    def stop(self) -> None:
        """Stop fetching until the next `take`; pages that were not taken are fetched again."""
        self.last_page.time_at_tip.since = None  # a shard that is not read is not at the tip
        self._fetching.stop()
        self._cutter.drop_rest_of_page()

    def give_back(self, in_use: int) -> None:
        """Give back the memory of pages and batches, but for those ``in_use``; see `take`."""
        self.stop()
        self._cutter.release_batches(in_use)

    def close(self) -> None:
        """Stop fetching permanently and release all memory. No batch must be in use."""
        self._fetching.end()
        self.stop()
        self._cutter.close()
        self._fetching.memory.close()

    # --- for any thread

    @property
    def waiting_since(self) -> float | None:
        """The arrival of the first record that is fetched and not in a batch."""
        rest = self._cutter.rest_of_page
        return self._fetching.oldest_at if rest is None else rest.arrival(rest.records[0])

    @property
    def bytes_held(self) -> int:
        """The bytes of records that wait or are being processed."""
        return self._fetching.memory.held + self._cutter.held

    @property
    def dropped(self) -> int:
        """User records of aggregates that the hash-range filter has dropped."""
        return self._filter.dropped

    def take_byte_count(self) -> int:
        """Return about how many bytes were taken since the last call, for lease statistics.

        For one other thread.
        """
        taken, self._bytes = self._bytes, 0
        return taken

    # --- the making of a batch: a fetcher, the part of its page that fits, its records, the batch

    def _running_fetcher(self) -> FetchAhead | None:
        """Return the fetcher; open one if necessary. Return None if nothing is to be fetched."""
        if self._fetching.was_interrupted:
            self.stop()
        start, check = self._progress.read_up_to.position, self._progress.start_check
        return self._fetching.fetcher(start, inclusive=check is not None)

    def _select(self, part: FetchedPage, next_from: float) -> Sequence[Record] | None:
        """Return the part's records to deliver, and advance to its end.

        Returns None if reading restarts instead: AT the last record, to check if records expired
        during a long pause, or at the bound of ``skip_older_than``.
        """
        settings, progress = self._settings, self._progress
        check, records = progress.start_check, part.records
        if check is None and progress.read_up_to.may_have_missed(part.fetched):
            self.stop()
            doubt = StartCheck(self._fetching.shard_id, progress.read_up_to.position, settings)
            self._progress = replace(progress, start_check=doubt)
            return None
        found = records if check is None else check.check_page(part.fetched)
        self.last_page.note(part)
        self._bytes += part.fetched.size
        # Use the present time, not the time of the fetch: pages age while a slow processor works.
        now = settings.clock()
        waited_ms = round((now - part.fetched_at) * 1000)
        selection = select(
            progress,
            part.fetched,
            found,
            settings.skip_before(part.service_time_ms + waited_ms),
            may_jump=now >= next_from and not part.at_shard_end,
        )
        self._progress = selection.progress
        if selection.jump_to_ms is not None:
            self.stop()
            self._report.skipping(selection.jump_to_ms)
            return None
        if settings.reads is not None and is_beyond(part.fetched, settings.reads):
            self.stop()
            self.end = ReadEnd(ShutdownReason.REQUESTED)
        elif part.at_shard_end:
            self.stop()
            children = part.fetched.page.child_shards or ()
            self.end = ReadEnd(children=tuple(shard_of(child) for child in children))
        if settings.reads is not None:
            return within(selection.records, settings.reads)
        return selection.records

    def _make_batch(
        self, part: FetchedPage, records: Sequence[Record], position: Position
    ) -> RecordBatch:
        """Return the batch of the records, without user records that are done at ``position``."""
        options = self._settings.options
        part = self._cutter.selected(part, records)
        make = partial(
            make_batch,
            records,
            stream=self._settings.client.address.name,
            shard_id=self._fetching.shard_id,
            millis_behind_latest=part.fetched.page.millis_behind_latest,
            fetched_ms=part.service_time_ms,
            aggregates=part.aggregates,
            habit=self._habit,
        )
        batch, dropped = self._filter.apply(make, part.fetched_at)
        self.oldest_at = part.arrival(records[0]) if records else None
        self._cutter.measure_batch(part)
        if dropped:
            self._settings.measures(self._fetching.shard_id).filtered(dropped)
            _log.info(
                "Dropped %d user records of aggregates outside of the hash range of %s",
                dropped,
                self._report.place,
            )
        # A record that is not unpacked cannot be delivered in part: it is delivered again.
        if (
            options.deaggregate
            and isinstance(position, AfterRecord)
            and position.sub_sequence_number is not None
        ):
            return batch.after(ExtendedSequenceNumber.of(position))
        return batch
