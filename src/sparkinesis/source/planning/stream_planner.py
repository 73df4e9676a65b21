"""Plans the batches of one stream: probes its shards and decides where the next batch ends."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial

from sparkinesis.errors import DataLossError, ServiceError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.options.read_options import StreamReadOptions
from sparkinesis.source.planning.age_probe import next_record_is_older
from sparkinesis.source.planning.application_position import (
    FormerStream,
    former_stream,
    leases_of_stream,
    resume,
)
from sparkinesis.source.planning.batch_end import (
    Finding,
    Quiet,
    Records,
    Walk,
    assemble,
    is_fresh,
    is_worth_storing,
    known_until,
    missing,
    walk,
    without_missing,
)
from sparkinesis.source.planning.batch_instant import Choice, ReadOn, SampleAt, Wanted
from sparkinesis.source.planning.probe_threads import for_all
from sparkinesis.source.planning.shard_prober import FIRST_LIMIT, ShardEnd, ShardProber
from sparkinesis.source.planning.skip_older_than import skip_older, undecided_shards
from sparkinesis.source.planning.survey import Survey
from sparkinesis.source.stream_report import SampleReport
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import (
    END_OF_TIME_MS,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AtTimestamp,
    FromApplication,
    Position,
)
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.missing_end import WARN_AFTER, warn_missing_end
from sparkinesis.stream.reading.retention import (
    CLOCK_MARGIN_MS,
    ITERATOR_LIFE_MS,
    RetentionCheck,
)
from sparkinesis.stream.shard import Lineage, Shard
from sparkinesis.stream.timing import MACHINE, Timing

_log = logging.getLogger(__name__)

STARTUP_RETRY = Retry(give_up_after=10.0)
"""Gives up soon, so that a wrong region or endpoint fails the query at its start."""

SMALLEST_LOOK = 50
"""The fewest records of a first look, however small the share of a shard."""

SHORT_OF_TIP_MS = 250
"""The distance of a batch's end to the tip, if records must be found by time: a busy shard has a
record that young."""

LIST_SHARDS_INTERVAL = 5.0
"""Seconds between two ListShards calls, at least; ChildShards make most of them unnecessary."""

MAX_LISTINGS = 12
"""Consecutive listings, a minute in all, to find a closed shard's children at a query's end."""


class _Losses:
    """The number of losses that the query went on from. For the threads of probers."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1


class StreamPlanner:
    """The planner of one stream, which keeps its state between batches. Owned by one thread.

    The state is a cache: a new planner plans the same from the last offset.
    """

    def __init__(
        self,
        client: StreamClient,
        options: StreamReadOptions,
        *,
        is_batch_read: bool = False,
        timing: Timing = MACHINE,
    ) -> None:
        """Make a planner.

        is_batch_read: shards missing from the start are left out on purpose, and no later read
        catches up.
        """
        self._client = client
        self._options = options
        self._is_batch_read = is_batch_read
        self._timing = timing
        self._period = options.min_fetch_period
        self._skip_older_than = options.skip_older_than
        self._lineage: Lineage | None = None
        self._announced: dict[str, Shard] = {}
        self._listed_at = float("-inf")
        self._polled_at = float("-inf")
        self._until_ms: int | None = None
        self._probers: dict[str, ShardProber] = {}
        self._lags: dict[str, int] = {}
        self._endless_since: dict[str, float] = {}
        """The time since which closed shards have returned neither a record nor their end."""
        self._expected: dict[str, int | None] = {}
        self._start: Positions = {}
        self._known: Positions = {}
        """The start of the batch that is planned, without shards that are gone."""
        self._allowance = NO_LIMIT
        self._looked: dict[str, ShardProber] = {}
        """The probers of the shards of the batch that is planned."""
        self._quiet: dict[str, ShardProber] = {}
        """Those of them that have no record, whose shards are open. Nothing else is asked of them:
        of thousands of shards, a plan considers those that have records."""
        self._active: dict[str, ShardProber] = {}
        """The others of them."""
        self._checks: dict[bool, RetentionCheck] = {}
        """The retention checks of this batch: of stored positions, and of an initial one."""
        self._checked: tuple[Positions, Lineage] | None = None
        """The start and the listing of which it is known that no shard is missing."""
        self._walked: tuple[Positions, Lineage, frozenset[str], Walk] | None = None
        """The last walk, and what it was made from."""
        self._quiet_bound_ms = END_OF_TIME_MS
        """The latest instant (epoch ms) up to which all quiet shards are known."""
        self._fresh: tuple[Positions, int | None] | None = None
        """A start, and the instant up to which all of it is known to be complete."""
        self._children: dict[str, ShardProber] = {}
        """The probers of children that the next batch may read."""
        self._asked_for_children = 0
        self._has_resumed = is_batch_read
        """True once the offset from which the query resumes was checked for missing shards."""
        self._has_identified = is_batch_read
        """True once the positions were checked to belong to this stream, not to a deleted one."""
        self._losses = _Losses()
        self._sample: SampleReport | None = None
        self.began = 0.0
        """The time at which the last plan began, after the pause before it."""
        self._created_ms = 0
        """The creation time of the stream in epoch ms; 0 until it is known."""

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self.stop_at(self._list()[1])

    def stop_at(self, ms: int) -> None:
        """Plan from now on as if nothing arrived after this epoch ms, and without pauses."""
        self._until_ms = ms
        self._period = 0.0

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> Positions | None:
        """Begin to plan a batch from ``start``: look at the first records of each shard.

        Waits until ``min_fetch_period`` seconds have passed since the last call. Returns an offset
        without rows that must be stored before a batch can be planned, or None if there is none.
        """
        self._wait_for_period()
        self._start, self._allowance = start, allowance
        self._looked, self._children = {}, {}
        self._quiet, self._active, self._checks = {}, {}, {}
        self._asked_for_children = 0
        self._expected = {}
        known = self._of_present_stream(start)
        if known is not start:
            return known  # an offset without rows: no batch begins in the deleted stream
        initial = start.get(ANY_SHARD)
        if initial is LATEST:
            self._skip_older_than = None  # no record can be older
            return self._resolve_latest()
        if isinstance(initial, FromApplication):
            return self._resolve_application(initial.name)
        if self._skip_older_than is not None:
            skipped = self._skip_older(start, self._skip_older_than)
            self._skip_older_than = None  # once: records that arrive while the query runs are read
            if skipped is not start:
                return skipped
        lineage = self._lineage or self._list_shards()
        if not self._is_whole(start, lineage):
            self._known = self._without_lost_shards(start, lineage)
            self._checked = (start, self._lineage or lineage) if self._known is start else None
        self._look()
        return None

    def _is_whole(self, start: Positions, lineage: Lineage) -> bool:
        """Return True if an earlier plan found no shard of this very start missing."""
        if self._checked is None:
            return False
        checked, listed = self._checked
        return checked is start and listed is lineage  # to compare thousands of shards takes long

    @property
    def surveys(self) -> Mapping[str, Survey]:
        """What is known of the records of each shard that the batch may read, but quiet ones."""
        return {
            shard_id: prober.survey
            for shard_id, prober in self._active.items()
            if not prober.is_finished
        }

    @property
    def quiet_shards(self) -> int:
        """The number of open shards that are known to have no record for the batch."""
        return len(self._quiet)

    @property
    def latest_ms(self) -> Mapping[str, int]:
        """The latest instant (epoch ms) up to which the batch may read each shard of `surveys`.

        All that arrived in the shard by then is known or can be found.
        """
        return {shard_id: self._latest_ms(prober) for shard_id, prober in self._active.items()}

    def _latest_ms(self, prober: ShardProber) -> int:
        if self._until_ms is not None:
            return self._until_ms
        if prober.is_ended:
            return END_OF_TIME_MS
        return prober.asked_ms - (0 if prober.at_tip else SHORT_OF_TIP_MS)

    @property
    def bound_ms(self) -> int:
        """The latest instant (epoch ms) at which the batch may end.

        All that arrived in all shards by then is known or can be found. A shard's children are read
        in a later batch than its last rows, so the batch ends before the first record of such
        children.
        """
        bounds = [self._latest_ms(p) for p in (*self._active.values(), *self._children.values())]
        if self._quiet:
            bounds.append(self._quiet_bound_ms)
        for last, first in self._successions():
            bounds.append(max(first - 1, last))
        return min(bounds, default=END_OF_TIME_MS)

    @property
    def ends_a_shard(self) -> bool:
        """True if a shard ends in the batch."""
        return any(True for _ in self._successions())

    def _successions(self) -> Iterator[tuple[int, int]]:
        """Yield the last arrival in shards that end, and the first one in each of their successors.

        Both in epoch ms. A successor is a child, or a child's child if the child has no records.
        Unknown children may have records from the shard's end on.
        """
        assert self._lineage is not None
        todo = [
            (shard_id, last)
            for shard_id, prober in self._active.items()
            if prober.is_ended
            and not prober.is_finished
            and (last := prober.last_arrival) is not None
        ]
        while todo:
            shard_id, last = todo.pop()
            children = self._lineage.children_of_ended(shard_id)
            if children is None:
                yield last, last + 1
            for child in children or ():
                prober = self._children.get(child)
                if prober is not None and prober.first_arrival is not None:
                    yield last, prober.first_arrival
                elif prober is not None and prober.is_finished:
                    todo.append((child, last))

    def extend(self, wanted: Mapping[str, Wanted]) -> None:
        """Take more looks at shards."""

        def take(shard_id: str) -> None:
            match wanted[shard_id]:
                case ReadOn(weight):
                    self._looked[shard_id].read_on(weight)
                case SampleAt(instant, weight):
                    self._looked[shard_id].sample(instant, weight)

        self._for_each(wanted, take)
        self._look()

    def find_ends(self, choice: Choice[str]) -> None:
        """Find the batch's end in each shard.

        A closed shard may turn out to end before the instant, which lowers `bound_ms`.
        """
        assert self._lineage is not None
        instant, lineage = choice.instant, self._lineage

        def find(shard_id: str) -> None:
            self._end_of(shard_id, choice)

        # Closed shards first: their children may lower the instant.
        far = [s for s, survey in self.surveys.items() if survey.reach < choice.ends[s]]
        closed = [s for s in far if s in lineage.shards and not lineage.shards[s].is_open]
        if closed:
            self._for_each(closed, find)
            self._look()
        if self.bound_ms >= instant:
            others = [s for s in far if s not in set(closed)]
            if others:
                self._for_each(others, find)
                self._look()
        if self.bound_ms >= instant:
            for shard_id in self._active:
                find(shard_id)

    def finish(self, choice: Choice[str]) -> Positions:
        """Return the end of the batch, or the start itself if there are no new rows.

        Findings without rows (a shard closed, nothing arrived) are stored with the next row, or
        after six hours of silence: otherwise the stored position would look expired.
        """
        ends = {shard_id: self._end_of(shard_id, choice) for shard_id in self._active}
        self._sample = self._looked_at(ends)
        self._lags.update(dict.fromkeys(self._quiet, 0))
        self._lags.update({shard_id: end.lag_ms for shard_id, end in ends.items()})
        self._warn_of_missing_ends(ends)
        if self._has_nothing_to_store(ends):
            for shard_id in ends:
                begun = start_of(self._known, shard_id)
                self._active[shard_id].keep(begun, begun)
            return self._start
        return self._store(ends)

    def _looked_at(self, ends: Mapping[str, ShardEnd]) -> SampleReport | None:
        """Return how many rows and bytes are in hand of the shards that the batch reads."""
        sizes = [
            self._active[shard_id].in_hand
            for shard_id, end in ends.items()
            if isinstance(end.finding, Records)
        ]
        rows = sum(rows for rows, _ in sizes)
        return SampleReport(rows, sum(size for _, size in sizes)) if rows else None

    def _has_nothing_to_store(self, ends: Mapping[str, ShardEnd]) -> bool:
        """Return True if no shard has a row or has ended, and the start is fresh.

        All that `is_worth_storing` compares lies between the start and the last look.
        """
        if self._known is not self._start or ANY_SHARD in self._start or self._until_ms is not None:
            return False
        if not all(isinstance(end.finding, Quiet) for end in ends.values()):
            return False
        if self._fresh is None or self._fresh[0] is not self._start:
            self._fresh = self._start, known_until(self._start)
        latest = max((prober.quiet_until for prober in self._looked.values()), default=None)
        return is_fresh(self._fresh[1], latest)

    def _store(self, ends: Mapping[str, ShardEnd]) -> Positions:
        """Return the end of the batch, or its start if there is nothing to store after all."""
        assert self._lineage is not None
        findings: dict[str, Finding] = {
            shard_id: Quiet(prober.quiet_until) for shard_id, prober in self._quiet.items()
        }
        findings.update({shard_id: end.finding for shard_id, end in ends.items()})
        planned = assemble(self._known, self._lineage, self._walk(), findings)
        assert not planned.to_probe, planned.to_probe
        if planned.childless and self._until_ms is not None:
            self._end_without_children(planned.childless)
        for shard_id, prober in self._quiet.items():
            begun = start_of(self._known, shard_id)
            prober.rest(begun, planned.end.get(shard_id, SHARD_END))
        for shard_id, end in ends.items():
            begun = start_of(self._known, shard_id)
            self._active[shard_id].keep(begun, planned.end.get(shard_id, SHARD_END))
            if isinstance(end.finding, Records):
                self._expected[shard_id] = end.records
        is_new = self._known is not self._start or is_worth_storing(self._start, planned.end)
        if planned.has_rows or is_new:
            self._keep_only(planned.end)
            return planned.end
        return self._start

    def _end_of(self, shard_id: str, choice: Choice[str]) -> ShardEnd:
        instant = choice.ends.get(shard_id, choice.instant)
        return self._looked[shard_id].end(instant, choice.counts.get(shard_id))

    @property
    def expected(self) -> Mapping[str, int | None]:
        """The approximate number of records of the last batch, by shard; None: not known."""
        return self._expected

    @property
    def lags_ms(self) -> Mapping[str, int]:
        """The lag (ms) of each shard at the end of the last planned batch, by shard id."""
        return self._lags

    @property
    def losses(self) -> int:
        """The number of times that records were found gone, and the query went on."""
        return self._losses.count

    @property
    def sample(self) -> SampleReport | None:
        """The records that the last plan has looked at; None without any."""
        return self._sample

    def _wait_for_period(self) -> None:
        pause = self._polled_at + self._period - self._timing.clock()
        if pause > 0:
            self._timing.sleep(pause)
        if ITERATOR_LIFE_MS / 1000 < self._timing.clock() - self._polled_at < float("inf"):
            # The last call may be days ago. Records and shards known then may no longer be kept, so
            # everything is checked again.
            self._probers = {}
            self._announced = {}
            self._has_resumed = self._is_batch_read
            self._has_identified = self._is_batch_read
            if self._lineage is not None:
                self._list_shards()
        self._polled_at = self.began = self._timing.clock()

    def _resolve_latest(self) -> Positions:
        """Resolve LATEST to durable positions: the open shards, at the service's present time."""
        lineage, now_ms = self._list()
        self._wait_out_the_second()
        return {shard: AtTimestamp(now_ms) for shard in lineage.open_shards()}

    def _resolve_application(self, name: str) -> Positions:
        """Resolve a KCL application's checkpoints to fixed positions.

        The positions are stored, because the application may move its checkpoints.
        """
        address = self._client.address
        table = LeaseTable(
            name,
            address.region,
            self._options.dynamodb_endpoint,
            address.credentials,
            is_ours=False,
        )
        retry = STARTUP_RETRY if self._lineage is None else Retry()
        leases = table.leases(retry)
        present, stream = None, None
        if any(lease.stream for lease in leases):
            # A name is not enough: the stream may have been deleted and made anew.
            stream = self._client.describe(retry)
            if stream.created_ms:
                present = StreamIdentifier.of(self._client.stream_arn(), stream.created_ms)
        own = leases_of_stream(
            address,
            leases,
            table,
            present=present,
            alone=len(self._options.reading.streams) == 1,
        )
        if stream is not None and present is not None and not own:
            self._report_former(former_stream(address, leases, table, present))
            return self._whole_stream(stream)
        # Listed after the leases are read, so that every leased shard still kept is listed.
        lineage, now_ms = self._list()
        resumed = resume(own, lineage, now_ms, address=address, table=table)
        if AtTimestamp(now_ms) in resumed.values():
            self._wait_out_the_second()
        return resumed

    def _report_former(self, former: FormerStream) -> None:
        """Raise `DataLossError` if records of a deleted stream are lost, or log what happened."""
        if former.has_unread and self._options.reading.fail_on_data_loss:
            raise DataLossError(
                f"{former.text} Set the option failOnDataLoss to false to begin with the oldest "
                "record of the present stream, or set the option initialPosition to trim_horizon, "
                "latest or an instant."
            )
        _log.warning("%s The query begins with the oldest record of the stream.", former.text)
        if former.has_unread:
            self._losses.add()

    def _skip_older(self, start: Positions, seconds: float) -> Positions:
        lineage, now_ms = self._list()
        lineage = self._list_until_complete(lineage, partial(missing, start))
        bound_ms = now_ms - round(seconds * 1000)
        if self._created_ms > bound_ms:
            return start  # the stream is younger than the bound
        if bound_ms == now_ms:
            self._timing.sleep(1.0)  # the probes ask for the bound: see _wait_out_the_second
        # The records of a missing shard are older than the bound, so they are no loss. Unrelated
        # shards, of a stream that was created anew a moment later, begin at the bound as well.
        kept = start if set(start) == {ANY_SHARD} else without_missing(start, lineage)
        doubtful = undecided_shards(kept, bound_ms)

        def is_behind(shard_id: str) -> bool:
            budget = self._budget()
            position = doubtful[shard_id]
            return next_record_is_older(self._client, budget, shard_id, position, bound_ms)

        behind: set[str] = set()

        def ask(shard_id: str) -> None:
            if is_behind(shard_id):
                behind.add(shard_id)

        for_all(doubtful, ask)
        closed = any(not lineage.shards[shard].is_open for shard in doubtful)
        skipped = skip_older(kept, bound_ms, behind, has_closed=closed)
        if skipped == start:
            return start
        _log.warning(
            "%s: records that arrived before %s are skipped because of skipOlderThan.",
            self._client.address,
            datetime.fromtimestamp(bound_ms / 1000, timezone.utc).isoformat(),
        )
        return skipped

    def _wait_out_the_second(self) -> None:
        # The service refuses instants in its future, and its clock is known only to the second.
        self._polled_at = self._timing.clock() + max(0.0, 1.0 - self._period)

    def _list_shards(self) -> Lineage:
        pause = self._listed_at + LIST_SHARDS_INTERVAL - self._timing.clock()
        if pause > 0:
            self._timing.sleep(pause)
        lineage, _ = self._list()
        return lineage

    def _list(self) -> tuple[Lineage, int]:
        self._listed_at = self._timing.clock()
        retry = STARTUP_RETRY if self._lineage is None else None
        shards, now_ms = self._client.list_shards(retry)
        listed = {shard.id for shard in shards}
        # ListShards may lag behind the children that closed shards have announced.
        self._announced = {s: child for s, child in self._announced.items() if s not in listed}
        self._lineage = Lineage.of(shards).with_children(self._announced.values())
        return self._lineage, now_ms

    def _list_until_complete(
        self, lineage: Lineage, left_out: Callable[[Lineage], Sequence[str]]
    ) -> Lineage:
        """Return the lineage, listed again until no existing shard is ``left_out``.

        The listing may lag behind a reshard, or may be older than it.
        """
        has_waited = False
        while shards := left_out(lineage):
            found: set[str] = set()

            def ask(shard_id: str) -> None:
                if self._client.has_shard(shard_id):
                    found.add(shard_id)  # noqa: B023

            for_all(shards, ask)
            there = [shard for shard in shards if shard in found]
            if not there:
                break
            if has_waited:
                _log.warning(
                    "%s has shard %s, but ListShards does not return it yet. Waiting for it.",
                    self._client.address,
                    ", ".join(there[:10]),
                )
            lineage = self._list_shards()
            has_waited = True
        return lineage

    def _of_present_stream(self, start: Positions) -> Positions:
        """Return ``start``, or the present stream's start if ``start`` is of a deleted stream.

        Calls DescribeStreamSummary when a query resumes from an offset, and after each long pause.
        Raises `DataLossError`.
        """
        if self._has_identified:
            return start
        stored = {shard: at for shard, at in start.items() if shard != ANY_SHARD}
        if not stored:
            self._has_identified = True
            return start
        check = RetentionCheck(
            self._client,
            self._options.reading.fail_on_data_loss,
            on_accepted=self._losses.add,
        )
        stream = self._client.describe(STARTUP_RETRY if self._lineage is None else None)
        others = check.report_other_stream(stored, stream, self._skip_older_than)
        self._created_ms = stream.created_ms
        if not others:
            self._has_identified = True  # the offsets that follow are of the present stream
            return start
        # Positions without a time, such as SHARD_END, are of the deleted stream, too.
        return self._whole_stream(stream)

    def _whole_stream(self, stream: StreamSummary) -> Positions:
        """Return the start of all shards of a stream that was deleted and made anew."""
        lineage, now_ms = self._list()
        # TRIM_HORIZON with a time, so that a loss is noticed if the query rests before it goes on.
        # Records that expire within a minute are left out: they may expire before they are read.
        oldest_ms = max(stream.created_ms, now_ms - stream.retention_ms + CLOCK_MARGIN_MS)
        return dict.fromkeys(without_missing({}, lineage), AtTimestamp(oldest_ms))

    def _without_lost_shards(self, start: Positions, lineage: Lineage) -> Positions:
        lineage = self._list_until_complete(lineage, partial(missing, start))
        gone = missing(start, lineage)
        if not gone:
            return self._with_forgotten_shards(start, lineage)
        text = (
            f"{self._client.address} no longer has shard {', '.join(gone)}, which the query has "
            f"read up to {', '.join(str(start[shard]) for shard in gone)}: its records were older "
            "than the stream's retention period, or the stream was deleted and created anew. The "
            "records that followed in it are lost."
        )
        if self._options.reading.fail_on_data_loss:
            raise DataLossError(
                f"{text} Set the option failOnDataLoss to false to resume from the oldest records "
                "kept, or start with a new checkpoint location."
            )
        _log.warning("%s Resuming from the oldest records kept, as failOnDataLoss=false.", text)
        self._losses.add()
        return without_missing(start, lineage)

    def _with_forgotten_shards(self, start: Positions, lineage: Lineage) -> Positions:
        """Add shards that are missing in an offset that was edited by hand."""
        if self._has_resumed or not start or ANY_SHARD in start:
            return start
        self._has_resumed = True  # this planner makes the offsets that follow
        whole = without_missing(start, lineage)
        if forgotten := sorted(set(whole) - set(start)):
            _log.warning(
                "%s: the checkpoint has no position for shard %s, nor for its ancestors or "
                "descendants. The shard is read from its start.",
                self._client.address,
                ", ".join(forgotten[:10]),
            )
            return whole
        return start

    def _look(self) -> None:
        """Look at all shards of the batch, and at the children of those that end in it."""
        while True:
            assert self._lineage is not None
            walked = self._walk()
            to_probe = {
                shard_id: start_of(self._known, shard_id)
                for shard_id in walked.reached
                if shard_id not in self._looked and shard_id not in walked.finished
            }
            if to_probe:
                self._look_at(to_probe, self._looked)
                self._sort_out(to_probe)
            elif walked.childless and self._may_list(self._asked_for_children):
                self._asked_for_children += 1
                self._list_shards()
            else:
                ending = [s for s, prober in self._active.items() if prober.is_ended]
                ending += [s for s, prober in self._children.items() if prober.is_finished]
                children = {c for s in ending for c in self._lineage.children_of_ended(s) or ()}
                new = children - set(self._looked) - set(self._children)
                if not new:
                    return
                self._look_at(dict.fromkeys(sorted(new), TRIM_HORIZON), self._children, limit=1)

    def _walk(self) -> Walk:
        """Return the shards that the batch may read, as far as it is known which are finished."""
        assert self._lineage is not None
        finished = frozenset(s for s, prober in self._active.items() if prober.is_finished)
        if self._walked is not None:
            known, lineage, then_finished, walked = self._walked
            if known is self._known and lineage is self._lineage and then_finished == finished:
                return walked
        walked = walk(self._known, self._lineage, finished)
        self._walked = self._known, self._lineage, finished, walked
        return walked

    def _sort_out(self, shards: Iterable[str]) -> None:
        """Note which of these shards are quiet."""
        assert self._lineage is not None
        listed = self._lineage.shards
        for shard_id in shards:
            prober = self._looked[shard_id]
            shard = listed.get(shard_id)
            if prober.is_quiet and shard is not None and shard.is_open:
                self._quiet[shard_id] = prober
            else:
                self._active[shard_id] = prober
        self._quiet_bound_ms = min(
            (self._latest_ms(prober) for prober in self._quiet.values()), default=END_OF_TIME_MS
        )

    def _look_at(
        self,
        shards: Mapping[str, Position],
        looked: dict[str, ShardProber],
        limit: int | None = None,
    ) -> None:
        assert self._lineage is not None
        lineage = self._lineage
        if limit is None and self._allowance.is_limited:
            share = self._allowance.rows / len(shards)
            limit = FIRST_LIMIT if share > FIRST_LIMIT else max(SMALLEST_LOOK, math.ceil(share))
        for shard_id in shards:
            looked[shard_id] = self._prober(shard_id)
        until_ms = math.inf if self._until_ms is None else self._until_ms

        def look(shard_id: str) -> None:
            prober = looked[shard_id]
            prober.look(shards[shard_id], self._allowance, limit, until_ms)
            if shard_id in lineage.shards and not lineage.shards[shard_id].is_open:
                prober.meet_end()

        self._for_each(shards, look)

    def _for_each(self, shards: Iterable[str], do: Callable[[str], None]) -> None:
        """Call for each shard, in parallel, and add the children that shards announce."""
        assert self._lineage is not None
        todo = list(shards)
        for_all(todo, do)
        for shard_id in todo:
            prober = self._looked.get(shard_id) or self._children[shard_id]
            if prober.children:
                self._add_announced(self._lineage, prober.children)

    def _end_without_children(self, childless: Sequence[str]) -> None:
        """Log the shards whose children are left out; a batch read raises `ServiceError`."""
        names = ", ".join(childless[:10])
        if self._is_batch_read:
            raise ServiceError(
                f"{self._client.address}: shard {names} is closed, and ListShards has not returned "
                f"its children for {MAX_LISTINGS * LIST_SHARDS_INTERVAL:.0f} seconds. Their rows "
                "would be missing from this read. Run the read again once the reshard is complete, "
                "or end it at a sequence number of that shard with the option endingPosition."
            )
        _log.warning(
            "%s: shard %s is closed, and ListShards does not return its children. The next query "
            "that resumes from this checkpoint reads them.",
            self._client.address,
            names,
        )

    def _add_announced(self, lineage: Lineage, children: Sequence[Shard]) -> None:
        """Add the children that a closed shard has announced."""
        new = [child.id for child in children if child.id not in lineage.shards]
        self._announced.update({child.id: child for child in children})
        lineage = lineage.with_children(children)
        # The other parent of a merge may be younger than the last listing. List it first: an
        # unlisted parent counts as expired, and the child would not wait for it.
        self._lineage = self._list_until_complete(
            lineage, lambda known: known.unlisted_parents(new)
        )

    def _may_list(self, asked: int) -> bool:
        """Return True if shards may be listed for children that a closed shard did not announce.

        ``asked``: the number of these listings so far for this batch. One is enough while the query
        runs: the next batch lists again. A query that is about to end must find all of its shards.
        """
        if self._until_ms is None:
            return not asked and self._timing.clock() - self._listed_at >= LIST_SHARDS_INTERVAL
        return asked < MAX_LISTINGS

    def _prober(self, shard_id: str) -> ShardProber:
        # An initial start may be older than the oldest record; that is no loss.
        is_stored = shard_id in self._known or ANY_SHARD not in self._known
        check = self._checks.get(is_stored)
        if check is None:
            check = self._checks[is_stored] = RetentionCheck(
                self._client,
                self._options.reading.fail_on_data_loss and is_stored,
                logs_doubt=not self._is_batch_read and is_stored,
                on_accepted=self._losses.add if is_stored else None,
            )
        if shard_id in self._probers:
            self._probers[shard_id].use_check(check)
        else:
            self._probers[shard_id] = ShardProber(
                self._client,
                shard_id,
                self._budget(),
                check,
                deaggregate=self._options.reading.deaggregate,
            )
        return self._probers[shard_id]

    def _budget(self) -> ShardBudget:
        return ShardBudget(self._options.reading.pace, self._timing.clock, self._timing.sleep)

    def _warn_of_missing_ends(self, found: Mapping[str, ShardEnd]) -> None:
        """Warn of closed shards that return neither records nor their end.

        A query that stops at an instant does not wait for the ends of shards. It does not warn
        either, because a shard whose later records are left to the next query looks the same.
        """
        assert self._lineage is not None
        if self._until_ms is not None:
            return
        now = self._timing.clock()
        if self._endless_since:
            self._endless_since = {s: at for s, at in self._endless_since.items() if s in found}
        for shard_id, result in found.items():
            shard = self._lineage.shards.get(shard_id)
            is_at_tip = (
                isinstance(result.finding, Quiet)
                and result.finding.clear_until is not None
                and self._looked[shard_id].first_arrival is None
            )
            if not is_at_tip or shard is None or shard.is_open:
                self._endless_since.pop(shard_id, None)
            elif now - self._endless_since.setdefault(shard_id, now) >= WARN_AFTER:
                self._endless_since[shard_id] = float("inf")  # once is enough
                warn_missing_end(
                    self._client.address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )

    def _keep_only(self, end: Positions) -> None:
        kept = {*end, *self._children}
        self._probers = {s: prober for s, prober in self._probers.items() if s in kept}
        self._lags = {s: lag for s, lag in self._lags.items() if end.get(s, SHARD_END) != SHARD_END}
