"""A Java KCL's worker that leads a fleet, and an operator who changes its mode.

The leader holds no lease itself. It assigns leases with Java's conditions, which do not expect the
counter, and its lock lasts for two minutes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError
from msgspec.structs import replace

from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.coordination import SeenRows, seen_in
from sparkinesis.lease.assignment.coordinator_state import (
    LeaderLock,
    SeenLock,
    Version,
    VersionRow,
    decode_lock,
    decode_version,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import read_rows
from sparkinesis.lease.table.update import Update
from tests.simulation.dynamodb import LeaseTableModel
from tests.simulation.fleet import APPLICATION
from tests.simulation.history import JavaLeader
from tests.simulation.scheduler import Process, Scheduler

DURATION = 120.0
"""Seconds for which the lock of a Java leader holds."""
_HEARTBEAT = 30.0
_RUNS = 2
"""Failover times between two runs of the leader, of which each third balances."""
_BALANCES = 3
_VERSIONS = {
    "2X": coordinator_state.VERSION_2X,
    "upgrade": coordinator_state.UPGRADE_FROM_2X,
    "3X with rollback": coordinator_state.VERSION_3X_WITH_ROLLBACK,
    "3X": coordinator_state.VERSION_3X,
}


@dataclass
class JavaLeaders:
    scheduler: Scheduler
    table: LeaseTableModel
    now_ms: Callable[[], int]
    failover_time: float
    processes: dict[Process, str] = field(default_factory=dict)
    """Those that have led or wanted to, and their worker ids."""
    modes: list[tuple[float, str]] = field(default_factory=list)
    """When an operator has set the mode."""
    _are_to_end: bool = False

    def set_mode(self, mode: str, *, is_java: bool = False) -> None:
        """Sets the mode of the fleet, as Java's migration tool does.

        is_java: True for one that leaves a sign of Java.
        """
        self.table.is_there = True
        item = self.table.rows.get(coordinator_state.VERSION_KEY)
        by = "java" if is_java else f"operator-1-{0:012x}"
        version = Version(_VERSIONS[mode], by, self.now_ms())
        known = None if item is None else decode_version(item)
        row = (
            VersionRow(version) if known is None else known.changed(version.name, by, self.now_ms())
        )
        key = {"leaseKey": {"S": coordinator_state.VERSION_KEY}}
        put = self.table.put_long_ago if known is None and is_java else self.table.put
        put(coordinator_state.VERSION_KEY, {**key, **coordinator_state.encode_version(row)})
        self.modes.append((self.scheduler.now, mode))

    def start(self, event: JavaLeader) -> None:
        number = len(self.processes) + 1
        process = self.scheduler.process(f"java leader {number}")
        self.processes[process] = f"java-{number}-{0:012x}"
        self.scheduler.spawn(process, "leads", lambda: _Life(self, process, event).run())

    def end(self) -> None:
        """Lets those that live leave."""
        self._are_to_end = True

    @property
    def are_to_end(self) -> bool:
        return self._are_to_end


class _Life:
    """One process of a Java leader."""

    def __init__(self, leaders: JavaLeaders, process: Process, event: JavaLeader) -> None:
        self._leaders = leaders
        self._process = process
        self._event = event
        self._table, self._scheduler = leaders.table, leaders.scheduler
        self._me = leaders.processes[process]
        self._seen: SeenLock | None = None
        self._held: LeaderLock | None = None
        self._counters: dict[str, tuple[int, float]] = {}
        self._beaten_at = self._ran_at = -math.inf
        self._runs = 0

    def run(self) -> None:
        """Leads until the event's time is over, and stands still once."""
        began, event = self._scheduler.now, self._event
        still_at = began + event.seconds / 2 if event.still else math.inf
        while self._scheduler.now < began + event.seconds and not self._leaders.are_to_end:
            if self._scheduler.now >= still_at:
                still_at = math.inf
                self._scheduler.sleep(event.still)
            if self._table.is_there:
                self._step()
            self._scheduler.sleep(1.0)
        if self._held is not None and (event.leaves or self._leaders.are_to_end):
            self._lock_call("DeleteItem", {}, coordinator_state.owner_expects(self._held))

    def _step(self) -> None:
        item = self._table.rows.get(coordinator_state.LOCK_KEY)
        lock = None if item is None else decode_lock(item)
        now = self._scheduler.now
        self._seen = coordinator_state.observe(self._seen, lock, now)
        if self._has_leader():
            self._lead(lock, now)
        if self._held is not None and now - self._ran_at >= _RUNS * self._leaders.failover_time:
            self._ran_at = now
            self._assign(now)
            self._runs += 1

    def _has_leader(self) -> bool:
        item = self._table.rows.get(coordinator_state.VERSION_KEY)
        row = None if item is None else decode_version(item)
        return (
            row is not None
            and coordinator_state.sharing_of(row) is coordinator_state.Sharing.ASSIGNED
        )

    def _lead(self, lock: LeaderLock | None, now: float) -> None:
        """Proves that it is alive, or stands for leader."""
        if self._held is not None:
            if now - self._beaten_at < _HEARTBEAT:
                return
            after = replace(self._held, version=self._new_version())
            changes = coordinator_state.heartbeat(self._held, after.version)
            expected = coordinator_state.owner_expects(self._held)
        elif coordinator_state.can_acquire(self._seen, now):
            after = LeaderLock(self._me, round(DURATION * 1000), self._new_version())
            changes = coordinator_state.encode_lock(after)
            known = coordinator_state.acquire_expects(lock)
            expected = {"leaseKey": None} if known is None else known
        else:
            return
        is_mine = self._lock_call("UpdateItem", changes, expected)
        self._held = after if is_mine else None
        self._beaten_at = now

    def _new_version(self) -> str:
        return f"{self._scheduler.rng.getrandbits(64):016x}"

    def _lock_call(
        self, operation: str, changes: Mapping[str, Any], expected: Mapping[str, Any]
    ) -> bool:
        tests = [
            f"attribute_not_exists({name})" if value is None else f"{name} = :known_{name}"
            for name, value in expected.items()
        ]
        values = {f":known_{name}": value for name, value in expected.items() if value is not None}
        request: dict[str, Any] = {
            "TableName": APPLICATION,
            "Key": {"leaseKey": {"S": coordinator_state.LOCK_KEY}},
            "ConditionExpression": " AND ".join(tests),
        }
        if changes:
            request["UpdateExpression"] = "SET " + ", ".join(f"{n} = :{n}" for n in changes)
            values.update({f":{name}": value for name, value in changes.items()})
        return self._call(operation, {**request, "ExpressionAttributeValues": values})

    def _call(self, operation: str, request: Mapping[str, Any]) -> bool:
        try:
            self._table.serve(operation, request, self._process)
        except ClientError:
            return False
        return True

    # --- the leases

    def _assign(self, now: float) -> None:
        """Plans by one scan, and writes a moment later."""
        scan = read_rows(self._table.lease_rows.values())
        leases = [row for row in scan.leases if not row.is_finished]
        self._counters = {
            row.key: known
            if (known := self._counters.get(row.key, (-1, now)))[0] == row.counter
            else (row.counter, now)
            for row in leases
        }
        workers = self._members(seen_in(self._table.rows.values()))
        updates = self._plan(leases, workers, now)
        self._scheduler.sleep(self._scheduler.rng.uniform(0.01, 0.5))
        for update in updates:
            self._call("UpdateItem", update.request(APPLICATION))

    def _members(self, seen: SeenRows) -> list[str]:
        second = self._leaders.now_ms() / 1000
        alive = (one for one in seen.stats if one.is_alive(second) and not one.is_failing)
        return sorted(one.worker_id for one in alive)

    def _plan(self, leases: Sequence[Lease], workers: Sequence[str], now: float) -> list[Update]:
        if not workers:
            return []
        counts = Counter(dict.fromkeys(workers, 0))
        vacant = [
            row
            for row in leases
            if row.owner is None or now - self._counters[row.key][1] > self._leaders.failover_time
        ]
        held = [row for row in leases if row not in vacant and row.owner in counts]
        counts.update(row.owner for row in held if row.owner is not None)
        updates = []
        for row in vacant:
            least = min(counts, key=lambda who: (counts[who], who))
            counts[least] += 1
            updates.append(requests.assign(row, least))
        most, least = (choose(counts, key=lambda who: (counts[who], who)) for choose in (max, min))
        if self._runs % _BALANCES == 0 and counts[most] - counts[least] > 1:
            movable = [row for row in held if row.owner == most and row.checkpoint_owner is None]
            updates += [requests.initiate_handoff(row, least) for row in movable[:1]]
        return updates
