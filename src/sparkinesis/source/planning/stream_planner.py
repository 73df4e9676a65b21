"""Plans the batches of one stream: probes its shards and decides where the next batch ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial

from sparkinesis.errors import DataLossError, ServiceError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.options.read_options import StreamReadOptions
from sparkinesis.source.planning.age_probe import next_record_is_older
from sparkinesis.source.planning.application_position import leases_of_stream, resume
from sparkinesis.source.planning.batch_end import (
    Finding,
    Plan,
    Quiet,
    Records,
    is_worth_storing,
    merged,
    missing,
    plan,
    without_missing,
)
from sparkinesis.source.planning.shard_prober import ProbeResult, ShardProber
from sparkinesis.source.planning.skip_older_than import skip_older, undecided_shards
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
)
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.missing_end import WARN_AFTER, warn_missing_end
from sparkinesis.stream.reading.retention import ITERATOR_LIFE_MS, RetentionCheck
from sparkinesis.stream.shard import Lineage, Shard
from sparkinesis.stream.timing import MACHINE, Timing

_log = logging.getLogger(__name__)

STARTUP_RETRY = Retry(give_up_after=10.0)
"""Gives up soon, so that a wrong region or endpoint fails the query at its start."""

MAX_CONCURRENT_PROBES = 16

MIN_REFILL = 0.05
"""The unused share of a batch's allowance that is worth another probe."""

MAX_REFILLS = 3

MIN_PART = 0.01
"""The minimum share of the allowance for the remaining shards, so that none starves."""

LIST_SHARDS_INTERVAL = 5.0
"""Seconds between two ListShards calls, at least; ChildShards make most of them unnecessary."""

MAX_LISTINGS = 12
"""Consecutive listings, a minute in all, to find a closed shard's children at a query's end."""


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
        self._taken = 0.0
        self._expected: dict[str, int | None] = {}
        self._has_resumed = is_batch_read
        """True once the offset from which the query resumes was checked for missing shards."""
        self._has_identified = is_batch_read
        """True once the positions were checked to belong to this stream, not to a deleted one."""
        self._created_ms = 0
        """The creation time of the stream in epoch ms; 0 until it is known."""

    def stop_at_present(self) -> None:
        """Plan from now on as if nothing arrived after this instant, and without pauses."""
        self.stop_at(self._list()[1])

    def stop_at(self, ms: int) -> None:
        """Plan from now on as if nothing arrived after this epoch ms, and without pauses."""
        self._until_ms = ms
        self._period = 0.0

    def next_offset(self, start: Positions, allowance: Allowance = NO_LIMIT) -> Positions:
        """Return the end of the batch from ``start``, or ``start`` itself if there are no new rows.

        Waits until ``min_fetch_period`` seconds have passed since the last call. The batch has
        about as many records as ``allowance``, if they exist, and at least one. Findings without
        rows (a shard closed, nothing arrived) are stored with the next row, or after six hours of
        silence: otherwise the stored position would look expired.
        """
        self._wait_for_period()
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
        known = self._without_lost_shards(start, lineage)
        planned = self._plan(known, allowance)
        if planned.has_rows or known is not start or is_worth_storing(start, planned.end):
            self._keep_only(planned.end)
            return planned.end
        return start

    @property
    def taken(self) -> float:
        """The share of the allowance that the last planned batch uses; 1.0 is all."""
        return self._taken

    @property
    def expected(self) -> Mapping[str, int | None]:
        """The approximate number of records of the last batch, by shard; None: not known."""
        return self._expected

    def _expect(self, shard_id: str, more: int | None) -> None:
        before = self._expected.get(shard_id, 0)
        self._expected[shard_id] = None if before is None or more is None else before + more

    @property
    def lags_ms(self) -> Mapping[str, int]:
        """The lag (ms) of each shard at the end of the last planned batch, by shard id."""
        return self._lags

    @property
    def worst_lag_ms(self) -> int:
        return max(self._lags.values(), default=0)

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
        self._polled_at = self._timing.clock()

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
        leases = table.leases(STARTUP_RETRY if self._lineage is None else Retry())
        own = leases_of_stream(
            address, leases, table, alone=len(self._options.reading.streams) == 1
        )
        # Listed after the leases are read, so that every leased shard still kept is listed.
        lineage, now_ms = self._list()
        resumed = resume(own, lineage, now_ms, address=address, table=table)
        if AtTimestamp(now_ms) in resumed.values():
            self._wait_out_the_second()
        return resumed

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

        with ThreadPoolExecutor(MAX_CONCURRENT_PROBES) as pool:
            answers = pool.map(is_behind, doubtful)
            behind = {shard for shard, older in zip(doubtful, answers, strict=True) if older}
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
            with ThreadPoolExecutor(MAX_CONCURRENT_PROBES) as pool:
                found = tuple(pool.map(self._client.has_shard, shards))
            there = [shard for shard, is_there in zip(shards, found, strict=True) if is_there]
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
        stored = {shard: at for shard, at in start.items() if shard != ANY_SHARD}
        if self._has_identified:
            return start
        if not stored:
            self._has_identified = True
            return start
        check = RetentionCheck(self._client, self._options.reading.fail_on_data_loss)
        stream = self._client.describe(STARTUP_RETRY if self._lineage is None else None)
        others = check.report_other_stream(stored, stream, self._skip_older_than)
        self._created_ms = stream.created_ms
        if not others:
            self._has_identified = True  # the offsets that follow are of the present stream
            return start
        # Positions without a time, such as SHARD_END, are of the deleted stream, too.
        lineage, _ = self._list()
        return without_missing({}, lineage)

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

    def _plan(self, start: Positions, allowance: Allowance) -> Plan:
        findings: dict[str, Finding] = {}
        cut: dict[str, Position] = {}
        refills = 0
        self._taken = 0.0
        self._expected = {}
        asked_for_children = 0
        while True:
            assert self._lineage is not None
            planned = plan(start, self._lineage, findings)
            wanted = planned.to_probe
            if not wanted and 1.0 - self._taken > MIN_REFILL and refills < MAX_REFILLS:
                # Probe shards with more records again, with the allowance that others did not use.
                refills += 1
                wanted = cut
            if wanted:
                part = max(1.0 - self._taken, MIN_PART) / len(wanted)
                for shard_id, result in self._probe(wanted, start, allowance.share(part)).items():
                    before = findings.get(shard_id)
                    found = result.finding
                    findings[shard_id] = found if before is None else merged(before, found)
                    self._taken += result.taken * part
                    self._expect(shard_id, result.records)
                    cut.pop(shard_id, None)
                    if result.is_cut and isinstance(found, Records):
                        cut[shard_id] = AfterRecord(found.end)
                    self._add_announced(self._lineage, result.children)
            elif planned.childless and self._may_list(asked_for_children):
                asked_for_children += 1
                self._list_shards()
            else:
                if planned.childless and self._until_ms is not None:
                    self._end_without_children(planned.childless)
                return planned

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

    def _probe(
        self, shards: Mapping[str, Position], start: Positions, allowance: Allowance
    ) -> dict[str, ProbeResult]:
        for shard_id in shards:
            # An initial start may be older than the oldest record; that is no loss.
            is_stored = shard_id in start or ANY_SHARD not in start
            check = RetentionCheck(
                self._client,
                self._options.reading.fail_on_data_loss and is_stored,
                logs_doubt=not self._is_batch_read and is_stored,
            )
            if shard_id in self._probers:
                self._probers[shard_id].use_check(check)
            else:
                budget = self._budget()
                self._probers[shard_id] = ShardProber(
                    self._client,
                    shard_id,
                    budget,
                    check,
                    self._until_ms,
                    deaggregate=self._options.reading.deaggregate,
                )
        with ThreadPoolExecutor(min(MAX_CONCURRENT_PROBES, len(shards))) as pool:
            results = pool.map(
                lambda item: self._probers[item[0]].probe(item[1], allowance), shards.items()
            )
            found = dict(zip(shards, results, strict=True))
        self._lags.update({shard_id: result.lag_ms for shard_id, result in found.items()})
        self._warn_of_missing_ends(found)
        return found

    def _budget(self) -> ShardBudget:
        return ShardBudget(self._options.reading.pace, self._timing.clock, self._timing.sleep)

    def _warn_of_missing_ends(self, found: Mapping[str, ProbeResult]) -> None:
        """Warn of closed shards that return neither records nor their end.

        A query that stops at an instant does not wait for the ends of shards. It does not warn
        either, because a shard whose later records are left to the next query looks the same.
        """
        assert self._lineage is not None
        if self._until_ms is not None:
            return
        now = self._timing.clock()
        for shard_id, result in found.items():
            shard = self._lineage.shards.get(shard_id)
            is_at_tip = isinstance(result.finding, Quiet) and result.finding.clear_until is not None
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
        self._probers = {s: prober for s, prober in self._probers.items() if s in end}
        self._lags = {s: lag for s, lag in self._lags.items() if end.get(s, SHARD_END) != SHARD_END}
