"""Plans the batches of one stream: the pause between plans, and what is kept from plan to plan.

`sparkinesis.source.planning.aligned_batch` takes the plans of all streams of a query through the
same steps: begin, probe, choose an instant, find where the batch ends in each shard, finish.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkinesis.errors import ServiceError
from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.source.options.checked_options import NO_LIMIT, Allowance
from sparkinesis.source.planning.batch_end import NoRows, Records, is_fresh, is_worth_storing
from sparkinesis.source.planning.batch_instant import Choice
from sparkinesis.source.planning.batch_start import BatchStart
from sparkinesis.source.planning.kept import LIST_SHARDS_INTERVAL, Kept
from sparkinesis.source.planning.probing.end_in_shard import EndInShard, Resumption
from sparkinesis.source.planning.stream_plan import MAX_LISTINGS, StreamPlan
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.source.stream_report import SampleReport
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import SHARD_END
from sparkinesis.stream.reading.retention import ITERATOR_LIFE_MS
from sparkinesis.stream.reading.shard_end import EndlessShards

_log = logging.getLogger(__name__)

STARTUP_RETRY = Backoff(give_up_after=10.0)
"""Gives up soon, so that a wrong region or endpoint fails the query at its start."""

MAX_CARRIED = 1_000_000
"""The most bytes of data that a plan hands to the tasks of one stream: the driver sends them, and
executors together fetch more sooner."""

IDLE = 1.0
"""Seconds between two probes while no record arrives, or calls are throttled."""

BUSY = 0.4
"""Seconds between two probes while records arrive: half of the calls that a shard accepts."""

BUSY_FOR = 5.0
"""Seconds after the last record in which probes are that frequent."""

MOST_SHARDS = 100
"""The most shards that are probed that frequently: each probe costs the driver 0.2 ms of CPU."""

THROTTLED_FOR = 60.0
"""Seconds after a throttled call in which they are not: other consumers need the shard's calls."""


class ProbePeriod:
    """The time between two probes of all shards: the user's choice, or by the records that arrive.

    ``chosen``: seconds; None: `BUSY` while records arrive, else `IDLE`.
    """

    def __init__(self, chosen: float | None) -> None:
        self.idle = IDLE if chosen is None else chosen
        """Seconds between two probes while no record arrives."""
        self._busy = BUSY if chosen is None else chosen
        self._rows_at = -math.inf
        self._throttled = 0
        self._throttled_at = -math.inf

    def rows_arrived(self, at: float, shards: int) -> None:
        """Take into account that a probe of ``shards`` shards, at this time, has found records."""
        if shards <= MOST_SHARDS:
            self._rows_at = at

    def seconds(self, now: float, throttled: int) -> float:
        """Return the seconds to the next probe.

        ``throttled``: the number of calls that Kinesis has throttled so far.
        """
        if throttled > self._throttled:
            self._throttled, self._throttled_at = throttled, now
        is_busy = now - self._rows_at <= BUSY_FOR and now - self._throttled_at > THROTTLED_FOR
        return self._busy if is_busy else self.idle


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What the last plan found, for the query's progress and its tasks."""

    expected: Mapping[str, int | None] = field(default_factory=dict)
    """The approximate number of records of the batch, by shard; None: it is not known."""
    carried: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """The records themselves, by shard, where they are few: the tasks need not fetch them."""
    lags_ms: Mapping[str, int] = field(default_factory=dict)
    """The lag (ms) of each shard at the end of the batch, by shard id."""
    sample: SampleReport | None = None
    """The records that the plan has in hand; None without any."""


class StreamPlanner:
    """The planner of one stream. Owned by one thread.

    A plan is a `StreamPlan`, which ends with its batch. What is `Kept` between plans changes none:
    a new planner plans the same from the last offset.
    """

    def __init__(self, stream: StreamTools) -> None:
        self.stream = stream
        self._kept = Kept(stream, STARTUP_RETRY)
        self._start = BatchStart(stream, self._kept.listing, stream.options.skip_older_than)
        self._until_ms: int | None = None
        self._period = ProbePeriod(stream.options.min_fetch_period)
        self._polled_at = -math.inf
        self._endless = EndlessShards(stream.client.address)
        self.outcome = PlanResult()
        self.began = 0.0
        """The time at which the last plan began, after the pause before it."""

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self.stop_at(self._kept.listing.renew_now())

    def stop_at(self, ms: int) -> None:
        """Plan from now on as if nothing arrived after this epoch ms, and without pauses."""
        self._until_ms = ms
        self._period = ProbePeriod(0.0)

    def forget(self) -> None:
        """Drop what is kept between plans."""
        self._kept = Kept(self.stream, self._kept.listing.retry)
        self._start = BatchStart(self.stream, self._kept.listing, self._start.skip_older_than)

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> StreamPlan | Positions:
        """Begin to plan a batch from ``start``: probe the first records of each shard.

        Waits until the period of probes has passed since the last call. Returns an offset without
        rows if that must be stored before a batch can be planned.
        """
        self._wait_for_period()
        self.outcome = replace(self.outcome, expected={}, carried={})
        to_store, names_now = self._start.to_store_before(start)
        if names_now:
            # The service refuses instants in its future, and its clock is known only to the second.
            self._polled_at = self.stream.timing.clock() + max(0.0, 1.0 - self._period.idle)
        if to_store is not start:
            return to_store
        whole = self._start.whole(start)
        plan = StreamPlan(self.stream, self._kept, whole, allowance, self._until_ms)
        plan.probe()
        return plan

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
        if self.stream.options.fan_out is None and not self.stream.is_batch_read:
            self.outcome = replace(self.outcome, carried=carried_records(ends))
        self._leave_room(plan)
        if assembled.has_rows:
            self._period.rows_arrived(self.began, len(self._kept.probers))
        return assembled.end

    def _leave_room(self, plan: StreamPlan) -> None:
        """Leave the tasks their part of the calls on the shards that they read."""
        read = self.outcome.expected.keys() - self.outcome.carried.keys()
        for shard_id, prober in plan.active.items():
            prober.front.budget.set_pace(self.stream.pace(is_alone=shard_id not in read))

    def _has_nothing_to_store(
        self, plan: StreamPlan, start: Positions, ends: Mapping[str, EndInShard]
    ) -> bool:
        """Return True if no shard has a row or has ended, and the start is fresh.

        All that `is_worth_storing` compares lies between the start and the last probe.
        """
        if plan.start is not start or ANY_SHARD in start or self._until_ms is not None:
            return False
        if not all(isinstance(end.finding, NoRows) for end in ends.values()):
            return False
        probed = (*plan.quiet.values(), *plan.active.values())
        latest = max((prober.front.silent_until for prober in probed), default=None)
        return is_fresh(self._kept.known_until(start), latest)

    def _keep_only(self, end: Positions, plan: StreamPlan) -> None:
        """Drop the probers of shards that no later batch reads."""
        probers = self._kept.probers
        for shard_id in probers.keys() - end.keys() - plan.children.keys():
            del probers[shard_id]

    def _wait_for_period(self) -> None:
        clock = self.stream.timing.clock
        pause = (
            self._polled_at + self._period.seconds(clock(), self.stream.calls.throttled) - clock()
        )
        if pause > 0:
            self.stream.timing.sleep(pause)
        unseen = clock() - self._polled_at if math.isfinite(self._polled_at) else 0.0
        if unseen > ITERATOR_LIFE_MS / 1000:
            # The last call may be days ago. Records and shards found then may no longer be kept, so
            # everything is checked again.
            self.forget()
        elif unseen > LIST_SHARDS_INTERVAL and self._until_ms is None:
            # Shards may have ended meanwhile. While their ends are not met they look open, and a
            # batch would go beyond the first records of their children.
            self._kept.listing.renew_after_pause()
        self._polled_at = self.began = clock()

    def _end_without_children(self, shards: str) -> None:
        """Log the shards whose children are left out; a batch read raises `ServiceError`."""
        address = self.stream.client.address
        if self.stream.is_batch_read:
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
        self._endless.observe(endless, self.stream.timing.clock())


def _outcome(plan: StreamPlan, ends: Mapping[str, EndInShard]) -> PlanResult:
    """Return what a plan found, as if its batch had no rows."""
    lags = dict.fromkeys(plan.quiet, 0)
    lags.update({shard_id: end.lag_ms for shard_id, end in ends.items()})
    return PlanResult(lags_ms=lags, sample=_in_hand(plan, ends))


def _stored(outcome: PlanResult, ends: Mapping[str, EndInShard], end: Positions) -> PlanResult:
    """Return the outcome of a plan whose ``end`` is stored: shards at SHARD_END lag no more."""
    expected = {s: found.records for s, found in ends.items() if isinstance(found.finding, Records)}
    lags = outcome.lags_ms.items()
    left = {s: lag for s, lag in lags if end.get(s, SHARD_END) != SHARD_END}
    return replace(outcome, expected=expected, lags_ms=left)


def _settle_probers(plan: StreamPlan, found: Mapping[str, Resumption], end: Positions) -> None:
    """Prepare all probers for the next plan, which resumes at the start or the end of this one."""
    for shard_id, prober in plan.quiet.items():
        prober.front.stand_at(start_of(plan.start, shard_id), end.get(shard_id, SHARD_END))
    for shard_id, prober in plan.active.items():
        begun = start_of(plan.start, shard_id)
        prober.keep(found[shard_id], begun, end.get(shard_id, SHARD_END))


def _in_hand(plan: StreamPlan, ends: Mapping[str, EndInShard]) -> SampleReport | None:
    """Return how many rows and bytes are in hand of the shards that the batch reads."""
    hands = [
        plan.active[shard_id].front.hand
        for shard_id, end in ends.items()
        if isinstance(end.finding, Records)
    ]
    rows = sum(hand.rows for hand in hands)
    return SampleReport(rows, sum(hand.size for hand in hands)) if rows else None


def carried_records(ends: Mapping[str, EndInShard]) -> dict[str, Sequence[Record]]:
    """Return the records of each shard that travel with the tasks, within `MAX_CARRIED`.

    Near the tip the records in hand are the whole batch. A batch that is planned again, by another
    planner, has none: its tasks fetch the same records.
    """
    found: dict[str, Sequence[Record]] = {}
    left = MAX_CARRIED
    for shard_id, end in ends.items():
        if isinstance(end.finding, Records) and end.kept is not None:
            left -= sum(len(record.data) for record in end.kept)
            if left < 0:
                break
            found[shard_id] = end.kept
    return found
