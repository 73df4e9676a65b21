"""Plans the batches of one stream: where each begins, and where it ends.

`sparkinesis.source.planning.aligned_batch` takes the plans of all streams of a query through the
same steps: begin, look, choose an instant, find where the batch ends in each shard, finish.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkinesis.errors import ServiceError
from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.source.options.read_options import NO_LIMIT, Allowance, StreamReadOptions
from sparkinesis.source.plan_calls import PlanCalls
from sparkinesis.source.planning.batch_end import NoRows, Records, is_fresh, is_worth_storing
from sparkinesis.source.planning.batch_instant import Choice
from sparkinesis.source.planning.kept import Kept
from sparkinesis.source.planning.probing.carried import within_bounds
from sparkinesis.source.planning.probing.end_in_shard import EndInShard, Resumption
from sparkinesis.source.planning.probing.look_period import LookPeriod
from sparkinesis.source.planning.shard_listing import LIST_SHARDS_INTERVAL
from sparkinesis.source.planning.start.batch_start import (
    application_start,
    latest_start,
    present_start,
    with_forgotten_shards,
    without_lost_shards,
)
from sparkinesis.source.planning.start.skip_older_than import skip_older
from sparkinesis.source.planning.stream_plan import MAX_LISTINGS, StreamPlan
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.source.stream_report import SampleReport
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import LATEST, SHARD_END, AtTimestamp, FromApplication
from sparkinesis.stream.reading.retention import ITERATOR_LIFE_MS
from sparkinesis.stream.reading.shard_end import EndlessShards
from sparkinesis.stream.timing import MACHINE, Timing

_log = logging.getLogger(__name__)

STARTUP_RETRY = Backoff(give_up_after=10.0)
"""Gives up soon, so that a wrong region or endpoint fails the query at its start."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What the last plan found, for the query's progress and its tasks."""

    expected: Mapping[str, int | None] = field(default_factory=dict)
    """The approximate number of records of the batch, by shard; None: not known."""
    carried: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """The records themselves, by shard, where they are few: the tasks need not fetch them."""
    lags_ms: Mapping[str, int] = field(default_factory=dict)
    """The lag (ms) of each shard at the end of the batch, by shard id."""
    sample: SampleReport | None = None
    """The records that the plan has looked at; None without any."""


class StreamPlanner:
    """The planner of one stream. Owned by one thread.

    A plan is a `StreamPlan`, which ends with its batch. What is `Kept` between plans changes none:
    a new planner plans the same from the last offset.
    """

    def __init__(
        self,
        client: StreamClient,
        options: StreamReadOptions,
        *,
        is_batch_read: bool = False,
        timing: Timing = MACHINE,
        calls: PlanCalls | None = None,
    ) -> None:
        """Make a planner.

        is_batch_read: shards missing from the start are left out on purpose, and no later read
        catches up. calls: counts the calls of ``client``.
        """
        self._stream = StreamTools(client, options, is_batch_read, timing)
        self._kept = Kept(self._stream, STARTUP_RETRY)
        self._skip_older_than = options.skip_older_than
        self._until_ms: int | None = None
        self._period = LookPeriod(options.min_fetch_period)
        self._calls = calls or PlanCalls()
        self._polled_at = -math.inf
        self._endless = EndlessShards(client.address)
        self.outcome = PlanResult()
        self.began = 0.0
        """The time at which the last plan began, after the pause before it."""

    @property
    def losses(self) -> int:
        """The number of times that records were found gone, and the query went on."""
        return self._stream.losses.count

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self.stop_at(self._kept.listing.renew_now())

    def stop_at(self, ms: int) -> None:
        """Plan from now on as if nothing arrived after this epoch ms, and without pauses."""
        self._until_ms = ms
        self._period = LookPeriod(0.0)

    def forget(self) -> None:
        """Drop what is kept between plans."""
        self._kept = Kept(self._stream, self._kept.listing.retry)

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> StreamPlan | Positions:
        """Begin to plan a batch from ``start``: look at the first records of each shard.

        Waits until the period of looks has passed since the last call. Returns an offset without
        rows if that must be stored before a batch can be planned.
        """
        self._wait_for_period()
        self.outcome = replace(self.outcome, expected={}, carried={})
        to_store = self._to_store_before(start)
        if to_store is not start:
            return to_store
        plan = StreamPlan(self._stream, self._kept, self._whole(start), allowance, self._until_ms)
        plan.look()
        return plan

    def _to_store_before(self, start: Positions) -> Positions:
        """Return the offset without rows that replaces ``start``; or ``start`` itself."""
        stream, kept, listing = self._stream, self._kept, self._kept.listing
        if not kept.is_present:
            present, kept.created_ms = present_start(stream, listing, start, self._skip_older_than)
            if present is not start:
                return present  # no batch begins in the deleted stream
            kept.is_present = True  # the offsets that follow are of the present stream
        initial = start.get(ANY_SHARD)
        if initial is LATEST or isinstance(initial, FromApplication):
            if initial is LATEST:
                self._skip_older_than = None  # no record can be older
                resolved, now_ms = latest_start(listing)
            else:
                resolved, now_ms = application_start(stream, listing, initial.name)
            if now_ms is not None and AtTimestamp(now_ms) in resolved.values():
                # The service refuses instants in its future, and its clock is known only to the
                # second.
                self._polled_at = stream.timing.clock() + max(0.0, 1.0 - self._period.idle)
            return resolved
        if self._skip_older_than is not None:
            start = skip_older(stream, listing, start, self._skip_older_than, kept.created_ms)
            self._skip_older_than = None  # once: records that arrive while the query runs are read
        return start

    def _whole(self, start: Positions) -> Positions:
        """Return ``start`` without shards that are gone, and with those that it forgot."""
        kept, listing = self._kept, self._kept.listing
        listing.ensure()
        if kept.is_whole(start):
            return start
        whole = without_lost_shards(self._stream, listing, start)
        if whole is start and not kept.is_complete and start and ANY_SHARD not in start:
            kept.is_complete = True  # this planner makes the offsets that follow
            whole = with_forgotten_shards(self._stream, listing, start)
        if whole is start:
            kept.note_whole(start)
        return whole

    def finish(self, plan: StreamPlan, start: Positions, choice: Choice[str]) -> Positions:
        """Return the end of the batch, or ``start`` itself if there are no new rows.

        Findings without rows (a shard closed, nothing arrived) are stored with the next row, or
        after six hours of silence: otherwise the stored position would look expired.
        """
        found = plan.ends(choice)
        ends = {shard_id: resumption.end for shard_id, resumption in found.items()}
        self._warn_of_shards_without_end(plan, ends)
        self.outcome = _outcome(plan, ends)
        if self._has_nothing_to_store(plan, start, ends):
            for shard_id, prober in plan.active.items():
                begun = start_of(start, shard_id)
                prober.keep(found[shard_id], begun, begun)
            return start
        assembled = plan.assemble(ends)
        if assembled.childless and self._until_ms is not None:
            self._end_without_children(", ".join(assembled.childless[:10]))
        _settle_probers(plan, found, assembled.end)
        is_new = plan.start is not start or is_worth_storing(start, assembled.end)
        if not assembled.has_rows and not is_new:
            return start
        self._keep_only(assembled.end, plan)
        self.outcome = _stored(self.outcome, ends, assembled.end)
        if self._stream.options.fan_out is None and not self._stream.is_batch_read:
            self.outcome = replace(self.outcome, carried=within_bounds(ends))
        self._leave_room(plan)
        if assembled.has_rows:
            self._period.note_rows(self.began, len(self._kept.probers))
        return assembled.end

    def _leave_room(self, plan: StreamPlan) -> None:
        """Leave the tasks their part of the calls on the shards that they read."""
        read = self.outcome.expected.keys() - self.outcome.carried.keys()
        for shard_id, prober in plan.active.items():
            prober.front.budget.set_pace(self._stream.pace(is_alone=shard_id not in read))

    def _has_nothing_to_store(
        self, plan: StreamPlan, start: Positions, ends: Mapping[str, EndInShard]
    ) -> bool:
        """Return True if no shard has a row or has ended, and the start is fresh.

        All that `is_worth_storing` compares lies between the start and the last look.
        """
        if plan.start is not start or ANY_SHARD in start or self._until_ms is not None:
            return False
        if not all(isinstance(end.finding, NoRows) for end in ends.values()):
            return False
        looked = (*plan.quiet.values(), *plan.active.values())
        latest = max((prober.front.silent_until for prober in looked), default=None)
        return is_fresh(self._kept.known_until(start), latest)

    def _keep_only(self, end: Positions, plan: StreamPlan) -> None:
        """Drop the probers of shards that no later batch reads."""
        probers = self._kept.probers
        for shard_id in probers.keys() - end.keys() - plan.children.keys():
            del probers[shard_id]

    def _wait_for_period(self) -> None:
        clock = self._stream.timing.clock
        pause = self._polled_at + self._period.seconds(clock(), self._calls.throttled) - clock()
        if pause > 0:
            self._stream.timing.sleep(pause)
        unseen = clock() - self._polled_at if math.isfinite(self._polled_at) else 0.0
        if unseen > ITERATOR_LIFE_MS / 1000:
            # The last call may be days ago. Records and shards known then may no longer be kept, so
            # everything is checked again.
            self.forget()
        elif unseen > LIST_SHARDS_INTERVAL and self._until_ms is None:
            # Shards may have ended meanwhile. Those that have not told yet look open, and a batch
            # would go beyond the first records of their children.
            self._kept.listing.renew_after_pause()
        self._polled_at = self.began = clock()

    def _end_without_children(self, shards: str) -> None:
        """Log the shards whose children are left out; a batch read raises `ServiceError`."""
        address = self._stream.client.address
        if self._stream.is_batch_read:
            raise ServiceError(
                f"{address}: shard {shards} is closed, and ListShards has not returned "
                f"its children for {MAX_LISTINGS * LIST_SHARDS_INTERVAL:.0f} seconds. Their rows "
                "would be missing from this read. Run the read again once the reshard is complete, "
                "or end it at a sequence number of that shard with the option endingPosition."
            )
        _log.warning(
            "%s: shard %s is closed, and ListShards does not return its children. The next query "
            "that resumes from this checkpoint reads them.",
            address,
            shards,
        )

    def _warn_of_shards_without_end(self, plan: StreamPlan, ends: Mapping[str, EndInShard]) -> None:
        """Warn of closed shards that return neither records nor their end.

        A query that stops at an instant does not wait for the ends of shards. It does not warn
        either, because a shard whose later records are left to the next query looks the same.
        """
        if self._until_ms is not None:
            return
        listed = self._kept.listing.lineage.shards
        endless = [
            shard_id
            for shard_id, end in ends.items()
            if isinstance(end.finding, NoRows)
            and end.finding.clear_until is not None
            and plan.active[shard_id].front.hand.first_arrival is None
            and shard_id in listed
            and not listed[shard_id].is_open
        ]
        self._endless.observe(endless, self._stream.timing.clock())


def _outcome(plan: StreamPlan, ends: Mapping[str, EndInShard]) -> PlanResult:
    """Return what a plan found, as if its batch had no rows."""
    lags = dict.fromkeys(plan.quiet, 0)
    lags.update({shard_id: end.lag_ms for shard_id, end in ends.items()})
    return PlanResult(lags_ms=lags, sample=_looked_at(plan, ends))


def _stored(outcome: PlanResult, ends: Mapping[str, EndInShard], end: Positions) -> PlanResult:
    """Return the outcome of a plan whose ``end`` is stored: shards at SHARD_END lag no more."""
    expected = {s: found.records for s, found in ends.items() if isinstance(found.finding, Records)}
    lags = outcome.lags_ms.items()
    left = {s: lag for s, lag in lags if end.get(s, SHARD_END) != SHARD_END}
    return replace(outcome, expected=expected, lags_ms=left)


def _settle_probers(plan: StreamPlan, found: Mapping[str, Resumption], end: Positions) -> None:
    """Prepare all probers for the next plan, which resumes at the start or the end of this one."""
    for shard_id, prober in plan.quiet.items():
        prober.keep_quiet(start_of(plan.start, shard_id), end.get(shard_id, SHARD_END))
    for shard_id, prober in plan.active.items():
        begun = start_of(plan.start, shard_id)
        prober.keep(found[shard_id], begun, end.get(shard_id, SHARD_END))


def _looked_at(plan: StreamPlan, ends: Mapping[str, EndInShard]) -> SampleReport | None:
    """Return how many rows and bytes are in hand of the shards that the batch reads."""
    hands = [
        plan.active[shard_id].front.hand
        for shard_id, end in ends.items()
        if isinstance(end.finding, Records)
    ]
    rows = sum(hand.rows for hand in hands)
    return SampleReport(rows, sum(hand.size for hand in hands)) if rows else None
