"""Plans batches of one stream: looks at its shards and decides where the next batch ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sparkinesis.errors import DataLossError
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.plan import (
    Finding,
    Plan,
    is_worth_storing,
    missing,
    plan,
    without_missing,
)
from sparkinesis.source.prober import Look, ShardProber
from sparkinesis.stream.budget import Pace, ShardBudget
from sparkinesis.stream.client import StreamClient
from sparkinesis.stream.position import LATEST, AtTimestamp, Position
from sparkinesis.stream.retention import RetentionCheck
from sparkinesis.stream.retry import Retry
from sparkinesis.stream.shard import Lineage, Shard

_log = logging.getLogger(__name__)

FIRST_CONTACT = Retry(give_up_after=10.0)
"""A wrong region or endpoint is told soon, before the query has worked once."""

MOST_PROBES_AT_ONCE = 16

LIST_SHARDS_INTERVAL = 5.0
"""Seconds between two listings of the shards; ChildShards make them rare in the first place."""


class StreamPlanner:
    """What the driver knows of one stream between two batches. Owned by one thread.

    It can always be thrown away: a new one finds out the same from the last offset.
    """

    def __init__(
        self,
        client: StreamClient,
        *,
        pace: Pace,
        period: float,
        fail_on_data_loss: bool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._pace = pace
        self._period = period
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = clock
        self._sleep = sleep
        self._lineage: Lineage | None = None
        self._announced: dict[str, Shard] = {}
        self._listed_at = float("-inf")
        self._looked_at = float("-inf")
        self._until_ms: int | None = None
        self._probers: dict[str, ShardProber] = {}

    def stop_at_present(self) -> None:
        """From now on plan as if nothing arrived after this instant, and without pauses."""
        self.stop_at(self._list()[1])

    def stop_at(self, ms: int) -> None:
        """From now on plan as if nothing arrived after this epoch ms, and without pauses."""
        self._until_ms = ms
        self._period = 0.0

    def next_offset(self, start: Positions) -> Positions:
        """Where the batch that begins at ``start`` ends; ``start`` itself when there is no row.

        Looks at most once in ``period`` seconds, and waits for that. What was found out without a
        row (a shard closed, nothing arrived) enters the offset with the next row; or, on a stream
        that stays silent, after six hours, so that a stored position never
        looks expired only because nothing happened.
        """
        self._wait_for_turn()
        if start.get(ANY_SHARD) is LATEST:
            return self._resolve_latest()
        lineage = self._lineage or self._list_shards()
        known = self._without_lost_shards(start, lineage)
        planned = self._plan(known)
        if planned.has_rows or known is not start or is_worth_storing(start, planned.end):
            self._forget_all_but(planned.end)
            return planned.end
        return start

    def _wait_for_turn(self) -> None:
        pause = self._looked_at + self._period - self._clock()
        if pause > 0:
            self._sleep(pause)
        self._looked_at = self._clock()

    def _resolve_latest(self) -> Positions:
        """LATEST as something durable: the open shards, from the service's present time on."""
        lineage, now_ms = self._list()
        # The service refuses an instant in its future, and its clock is known to the second only.
        self._looked_at = self._clock() + max(0.0, 1.0 - self._period)
        return {shard: AtTimestamp(now_ms) for shard in lineage.open_shards()}

    def _list_shards(self) -> Lineage:
        pause = self._listed_at + LIST_SHARDS_INTERVAL - self._clock()
        if pause > 0:
            self._sleep(pause)
        lineage, _ = self._list()
        return lineage

    def _list(self) -> tuple[Lineage, int]:
        self._listed_at = self._clock()
        retry = FIRST_CONTACT if self._lineage is None else None
        shards, now_ms = self._client.list_shards(retry)
        listed = {shard.id for shard in shards}
        # ListShards may lag behind what closed shards have announced.
        self._announced = {s: child for s, child in self._announced.items() if s not in listed}
        self._lineage = Lineage.of(shards).with_children(self._announced.values())
        return self._lineage, now_ms

    def _without_lost_shards(self, start: Positions, lineage: Lineage) -> Positions:
        if not missing(start, lineage):
            return start
        # ListShards may lag behind a reshard: ask once more before anything is called lost.
        lineage = self._list_shards()
        gone = missing(start, lineage)
        if not gone:
            return start
        text = (
            f"{self._client.address} no longer has shard {', '.join(gone)}, in which the query "
            f"stands at {', '.join(str(start[shard]) for shard in gone)}: its records were older "
            "than the stream's retention period, or the stream was deleted and created anew. What "
            "followed in it is lost."
        )
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{text} Set the option failOnDataLoss to false to go on with the oldest records "
                "kept, or start with a new checkpoint location."
            )
        _log.warning("%s Going on with the oldest records kept, as failOnDataLoss=false.", text)
        return without_missing(start, lineage)

    def _plan(self, start: Positions) -> Plan:
        # Where the user wants to begin may be older than the oldest record: that is no loss.
        fail = self._fail_on_data_loss and ANY_SHARD not in start
        check = RetentionCheck(self._client, fail)
        findings: dict[str, Finding] = {}
        asked_for_children = False
        while True:
            assert self._lineage is not None
            planned = plan(start, self._lineage, findings)
            if planned.to_probe:
                for shard_id, look in self._look_at(planned.to_probe, check).items():
                    findings[shard_id] = look.finding
                    self._announced.update({child.id: child for child in look.children})
                    self._lineage = self._lineage.with_children(look.children)
            elif planned.childless and not asked_for_children and self._may_list():
                asked_for_children = True
                self._list_shards()
            else:
                return planned

    def _may_list(self) -> bool:
        at_once = self._clock() - self._listed_at >= LIST_SHARDS_INTERVAL
        # What was there at the start must be found before the query may end: wait for it.
        return at_once or self._until_ms is not None

    def _look_at(self, shards: Mapping[str, Position], check: RetentionCheck) -> dict[str, Look]:
        for shard_id in shards:
            if shard_id not in self._probers:
                budget = ShardBudget(self._pace, self._clock, self._sleep)
                self._probers[shard_id] = ShardProber(
                    self._client, shard_id, budget, check, self._until_ms
                )
        with ThreadPoolExecutor(min(MOST_PROBES_AT_ONCE, len(shards))) as pool:
            looks = pool.map(lambda item: self._probers[item[0]].look(item[1]), shards.items())
            return dict(zip(shards, looks, strict=True))

    def _forget_all_but(self, end: Positions) -> None:
        self._probers = {s: prober for s, prober in self._probers.items() if s in end}
