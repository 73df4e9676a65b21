"""The rows by which workers with a leader coordinate themselves, in both places, on a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from deploy.iam import POLICIES
from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
)
from sparkinesis.lease.assignment.coordination import Coordination, SeenRows, seen_in
from sparkinesis.lease.assignment.coordinator_state import (
    VERSION_3X,
    VERSION_KEY,
    HeldLock,
    LeaderLock,
    Version,
    VersionRow,
    encode_version,
    missing_row,
    new_lock,
    observe,
)
from sparkinesis.lease.assignment.worker_stats import CPU, WorkerStats
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault, LocalServer
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.failing import Failing
from tests.integration.lease.conftest import Scene, lease, table_of
from tests.kcl import COORDINATION, create_table, put_rows, recorded, rows_of

SERVER = "moto"
NOW = 1_795_233_100
STATS = WorkerStats("w-1", NOW, {CPU: (12.5, 50.0)}, {CPU: 100})
MINE = new_lock("me", 10.0, "v-1")
STATES, WORKERS = "-CoordinatorState", "-WorkerMetricStats"


def beside(dynamodb: Any, table: LeaseTable) -> None:
    """Create the tables of a KCL 3.0 to 3.4."""
    create_table(dynamodb, f"{table.name}{STATES}", "key")
    create_table(dynamodb, f"{table.name}{WORKERS}", "wid")


@pytest.fixture(params=["among the leases", "beside them", "in the kit"])
def place(
    request: pytest.FixtureRequest, table: LeaseTable, dynamodb: Any, light: LocalServer
) -> Coordination:
    """The rows of an application, where none is there yet."""
    if request.param == "in the kit":
        table = table_of(light, table.name)
        table.provision(LeaseTableOptions())
    elif request.param == "beside them":
        beside(dynamodb, table)
    found = Coordination.find(table, may_share_table=True)
    assert found.is_beside is (request.param == "beside them")
    return found


def seen(coordination: Coordination) -> SeenRows:
    return seen_in(coordination.table.scan().coordination)


def acquired(coordination: Coordination, lock: LeaderLock = MINE) -> HeldLock:
    held = coordination.acquire(coordination.lock(), lock, 100.0)
    assert held is not None
    return held


# --- Where the rows are


def test_the_tables_are_named_for_the_application(table: LeaseTable, dynamodb: Any) -> None:
    create_table(dynamodb, f"{table.name}-x{STATES}", "key")
    assert not Coordination.find(table).is_beside
    found = Coordination.find(table, f"{table.name}-x")
    assert found.is_beside
    assert found.workers.name == f"{table.name}-x{WORKERS}"


@pytest.mark.parametrize("status", [None, "INIT", "DEPLOYED", "PENDING", "COMPLETE"])
def test_the_rows_are_among_the_leases_once_all_have_moved(
    table: LeaseTable, dynamodb: Any, status: str | None
) -> None:
    beside(dynamodb, table)
    if status is not None:
        row = {
            "key": {"S": "TableMigration3.5"},
            "entityType": {"S": "TABLE_MIGRATION"},
            "tm": {"S": f"TABLE_MIGRATION_STATUS_{status}"},
            "mb": {"S": "j1"},
            "mts": {"N": "1795233097000"},
        }
        put_rows(dynamodb, f"{table.name}{STATES}", [row])
    assert Coordination.find(table).is_beside is (status != "COMPLETE")


def test_rows_that_java_has_begun_to_move_are_found(table: LeaseTable, dynamodb: Any) -> None:
    beside(dynamodb, table)
    tables = recorded("kcl-3.1.3-tables.json")
    put_rows(dynamodb, table.name, COORDINATION)
    put_rows(dynamodb, f"{table.name}{WORKERS}", tables["japp-WorkerMetricStats"]["Items"])
    found = Coordination.find(table)
    version = found.version()
    assert version is not None
    assert version.now == Version("CLIENT_VERSION_3X", "worker-1", 1795232870753)
    assert found.stats(seen(found)).keys() == {
        "worker-1",
        "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa",
        "5c691e4d-b331-4a12-9a92-b0731aaa672b",
    }
    assert found.lock() is None, "the lock moves last"
    put_rows(dynamodb, f"{table.name}{STATES}", tables["japp-CoordinatorState"]["Items"])
    assert found.lock() == LeaderLock(
        "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa",
        120_000,
        "f4bc4850-5b31-4de2-98a8-86ba7c423730",
    )
    version = found.version()
    assert version is not None
    assert version.now.by == "5c691e4d-b331-4a12-9a92-b0731aaa672b"


def test_rows_beside_the_leases_are_looked_for_every_minute(scene: Scene) -> None:
    """As while a fleet goes back to a KCL 3.4, or on to a KCL 3.5."""
    scene.create("x")
    me, began = scene.worker("me"), scene.time.now
    me.take()
    beside(scene.dynamodb, scene.table)

    def rows_beside() -> set[str]:
        tables = ((STATES, "key"), (WORKERS, "wid"))
        keys = (rows_of(scene.dynamodb, f"{scene.table.name}{name}", key) for name, key in tables)
        return set().union(*keys)

    scene.server.kinesis.calls.clear()
    for _ in range(6):
        scene.time.now += 9.9
        me.renew()
        me.take()
    assert rows_beside() == set()
    assert not scene.server.kinesis.calls.select(stream=f"{scene.table.name}{STATES}")[1:], (
        "our own scan"
    )
    scene.time.now = began + 60.0
    for _ in range(3):  # the lock that it has is not there
        me.take()
        scene.time.now += 30.0
    assert rows_beside() == {"me", "Leader"}


def test_a_java_leader_beside_the_leases_is_followed(scene: Scene) -> None:
    """The rows are those of a fleet of KCL 3.0 to 3.4."""
    beside(scene.dynamodb, scene.table)
    rows = Coordination.find(scene.table)
    version = {"cv": {"S": VERSION_3X}, "mb": {"S": "java"}, "mts": {"N": "1"}}
    assert rows.states.put(VERSION_KEY, version, None)
    acquired(rows, new_lock("java", 120.0, "v-1"))
    scene.create("x")
    scene.create("y", owner="java")
    me = scene.worker("me", "count")
    me.take()
    assert scene.owners() == {"x": (None, None), "y": ("java", None)}
    stats = rows_of(scene.dynamodb, f"{scene.table.name}{WORKERS}", "wid")
    assert stats.keys() == {"me"}


# --- Mode and stats


def test_one_worker_sets_the_mode_and_the_others_see_it(place: Coordination) -> None:
    assert place.version() is None
    mine, other = (missing_row(None, who, NOW, by_load=True) for who in ("me", "other"))
    assert mine is not None
    assert other is not None
    assert place.create_version(mine) == mine
    assert place.create_version(other) == mine
    late = place.states.put("Migration3.0", encode_version(other), None)
    assert not late, "it has looked before the first one wrote"
    assert place.version() == mine
    assert place.is_beside or seen(place).version == mine


def test_stats_are_written_again_and_again_and_deleted_unless_they_have_changed(
    place: Coordination,
) -> None:
    place.table.create(lease("shardId-000000000000"))
    place.write_stats(STATS)
    later = replace(STATS, updated_s=NOW + 30, samples={CPU: (50.0, 7.0)})
    place.write_stats(later)
    place.write_stats(replace(STATS, worker_id="w-2", samples={}, limits={}))
    assert not place.delete_stats(STATS)
    found = place.stats(seen(place))
    assert found.keys() == {"w-1", "w-2"}
    assert found["w-1"].samples == later.samples
    assert found["w-1"].is_alive(NOW + 90)
    # Beside the leases, workers of KCL 3.5 wait with their move until all say that they know it.
    assert found["w-1"].support_code == (None if place.is_beside else 1)
    assert place.delete_stats(later)
    assert not place.delete_stats(later)
    assert place.stats(seen(place)).keys() == {"w-2"}
    assert [row.key for row in place.table.leases()] == ["shardId-000000000000"]


def test_rows_of_a_day_ago_are_deleted_wherever_java_has_left_them(
    table: LeaseTable, dynamodb: Any
) -> None:
    beside(dynamodb, table)
    tables = recorded("kcl-3.1.3-tables.json")
    put_rows(dynamodb, table.name, COORDINATION)
    put_rows(dynamodb, f"{table.name}{WORKERS}", tables["japp-WorkerMetricStats"]["Items"])
    found = Coordination.find(table)
    stats = found.stats(seen(found))
    found.delete_stale(stats.values(), 1_795_232_872 + 86_401)
    assert found.stats(seen(found)).keys() == stats.keys() - {
        "5c691e4d-b331-4a12-9a92-b0731aaa672b"
    }
    found.delete_stale(stats.values(), 1_795_233_097 + 86_401)
    assert found.stats(seen(found)) == {}


# --- The lock


def test_the_first_worker_leads_and_the_next_one_waits(place: Coordination) -> None:
    assert place.lock() is None
    held = acquired(place)
    assert held == HeldLock(MINE, 100.0)
    assert place.lock() == MINE
    assert place.is_beside or seen(place).lock == MINE
    other = new_lock("other", 10.0, "v-9")
    assert place.acquire(None, other, 100.0) is None
    assert place.acquire(replace(MINE, version="v-0"), other, 100.0) is None
    assert place.acquire(replace(MINE, is_released=True), other, 100.0) is None
    assert place.lock() == MINE


def test_a_leader_that_is_silent_is_replaced_and_notices(place: Coordination) -> None:
    held = acquired(place)
    look = observe(None, place.lock(), 100.0)
    held_again = place.heartbeat(held.with_heartbeat("v-2"), 103.0)
    assert held_again == HeldLock(replace(MINE, version="v-2"), 103.0)
    look = observe(look, place.lock(), 109.0)
    assert look is not None
    assert not look.is_expired(119.0)
    assert look.is_expired(119.1)
    other = new_lock("other", 5.0, "v-9")
    assert place.acquire(look.lock, other, 119.1) == HeldLock(other, 119.1)
    assert place.heartbeat(held_again.with_heartbeat("v-3"), 119.2) is None
    place.release(held_again)
    assert place.lock() == other


def test_a_lock_that_its_leader_has_released_is_free(place: Coordination) -> None:
    held = acquired(place)
    place.release(held)
    assert place.lock() is None
    place.release(held)
    acquired(place, replace(MINE, owner="other"))


def test_a_process_of_the_same_id_has_a_lock_of_its_own(place: Coordination) -> None:
    """Two of them would else take each other's heartbeats for their own, and both lead."""
    held = acquired(place)
    known = place.lock()
    twin = place.acquire(known, replace(MINE, version="v-9"), 120.0)
    assert twin is not None
    assert place.heartbeat(held.with_heartbeat("v-2"), 121.0) is None
    place.release(held)
    assert place.lock() == twin.lock


def test_a_lock_that_another_client_has_left_released_is_free(place: Coordination) -> None:
    """Java's client can release a lock without deleting it; KCLs delete it."""
    held = acquired(place)
    place.states.update("Leader", {"isReleased": {"S": "1"}})
    assert place.heartbeat(held.with_heartbeat("v-2"), 103.0) is None
    released = place.lock()
    assert released is not None
    assert released.is_released
    other = new_lock("other", 10.0, "v-9")
    assert place.acquire(released, other, 104.0) == HeldLock(other, 104.0)
    assert place.lock() == other, "no attribute is left of the lock before"


def test_a_row_that_is_no_lock_is_an_error_with_a_remedy(place: Coordination) -> None:
    place.states.update("Leader", {"ownerName": {"S": "x"}})
    with pytest.raises(LeaseTableError, match=r"no lock of a leader\. Delete the row"):
        place.acquire(None, MINE, 1.0)


# --- Answers that are lost, and errors


@pytest.fixture
def lose(server: LocalServer) -> Callable[..., None]:
    """Let a server make the next writes of an operation, and lose the answers."""

    def set_plan(operation: str, times: int = 1) -> None:
        server.kinesis.faults = Failing(operation, Fault.dropped("after"), times=times)

    return set_plan


@pytest.fixture
def among(table: LeaseTable) -> Coordination:
    return Coordination.find(table, may_share_table=True)


def test_a_lock_whose_answer_was_lost_is_held(
    among: Coordination, lose: Callable[..., None]
) -> None:
    lose("PutItem")
    held = acquired(among)
    assert among.lock() == MINE
    lose("UpdateItem")
    held_again = among.heartbeat(held.with_heartbeat("v-2"), 103.0)
    assert held_again == HeldLock(replace(MINE, version="v-2"), 103.0)
    assert among.lock() == held_again.lock
    lose("DeleteItem")
    among.release(held_again)
    assert among.lock() is None


def test_a_mode_whose_answer_was_lost_is_set(
    among: Coordination, lose: Callable[..., None]
) -> None:
    mine = missing_row(None, "me", NOW, by_load=True)
    assert mine is not None
    lose("PutItem")
    assert among.create_version(mine) == mine


def test_nothing_is_written_among_leases_without_permission(table: LeaseTable) -> None:
    found = Coordination.find(table)
    assert not found.can_write
    held, row = HeldLock(MINE, 0.0), VersionRow(Version("CLIENT_VERSION_3X", "me", NOW))
    writes: list[Callable[[], object]] = [
        lambda: found.create_version(row),
        lambda: found.write_stats(STATS),
        lambda: found.delete_stats(STATS),
        lambda: found.acquire(None, MINE, 0.0),
        lambda: found.heartbeat(held.with_heartbeat("v-2"), 0.0),
        lambda: found.release(held),
    ]
    for write in writes:
        with pytest.raises(LeaseTableError, match=r"may not be written .* before 3\.5"):
            write()
    assert table.items() == []


def test_a_table_that_is_missing_beside_the_leases_is_named(
    table: LeaseTable, dynamodb: Any
) -> None:
    create_table(dynamodb, f"{table.name}{STATES}", "key")
    found = Coordination.find(table)
    with pytest.raises(LeaseTableNotFoundError, match=f"no table '{table.name}{WORKERS}' in"):
        found.write_stats(STATS)


def test_a_call_that_is_denied_or_throttled_is_an_error_of_ours(
    server: LocalServer, table: LeaseTable
) -> None:
    server.kinesis.faults = lambda _: Fault.error("AccessDeniedException")
    with pytest.raises(AccessDeniedError, match=f"GetItem on the table '{table.name}{STATES}'"):
        Coordination.find(table)
    throttled = Fault.error("ProvisionedThroughputExceededException")
    server.kinesis.faults = lambda call: throttled if call.ordinal < 3 else None
    assert not Coordination.find(table).is_beside
    server.kinesis.faults = lambda _: throttled
    with pytest.raises(LeaseTableUnavailableError):
        Coordination.find(table)


def test_the_calls_beside_the_leases_need_what_the_policy_allows(
    server: LocalServer, table: LeaseTable, dynamodb: Any
) -> None:
    beside(dynamodb, table)
    before = len(server.kinesis.calls)
    found = Coordination.find(table)
    found.create_version(VersionRow(Version("CLIENT_VERSION_3X", "me", NOW)))
    found.write_stats(STATS)
    found.stats(SeenRows())
    found.delete_stats(STATS)
    held = found.heartbeat(acquired(found).with_heartbeat("v-2"), 1.0)
    assert held is not None
    found.release(held)
    assert table.items() == [], "they are the leases' alone, and need no permission"
    used = {
        (str(call.stream), f"dynamodb:{call.operation}")
        for call in list(server.kinesis.calls)[before:]
        if call.stream != table.name
    }
    (policy,) = (each for each in POLICIES if each.name == "fleet-tables")
    assert used == {
        (grant.on.value.rpartition("/")[2].replace("APPLICATION", table.name), action)
        for grant in policy.grants
        for action in grant.actions
    }


# --- The costs


def test_what_coordination_costs_among_the_leases(server: LocalServer, among: Coordination) -> None:
    """Besides the scan that each worker makes anyway: a write for each row that changes."""
    held = acquired(among)
    among.write_stats(STATS)
    scan = among.table.scan()
    before = len(server.kinesis.calls)
    assert among.stats(seen_in(scan.coordination)).keys() == {"w-1"}
    among.write_stats(STATS)
    among.heartbeat(held.with_heartbeat("v-2"), 1.0)
    calls = [call.operation for call in list(server.kinesis.calls)[before:]]
    assert calls == ["UpdateItem", "UpdateItem"]
