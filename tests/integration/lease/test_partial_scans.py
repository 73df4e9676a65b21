"""Workers that read only their own rows while a leader lives, on a large lease table over HTTP."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from deploy.iam import POLICIES, action_of
from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.coordinator_state import VERSION_2X
from sparkinesis.lease.assignment.partial_scan import (
    FULL_EVERY,
    OWNER_INDEX,
    STANDBYS,
    WORTHWHILE,
    create_index,
    keys_of,
    read_some,
)
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.table import requests
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.failing import Failing
from tests.integration.lease.conftest import (
    FAILOVER,
    SOON,
    Scene,
    lease,
    table_of,
)
from tests.integration.lease.test_assignment import release_asked

LEADER, *FOLLOWERS = [f"host-1-00000000000{digit}" for digit in "abcde"]
KEYS = [f"shardId-{number:012d}" for number in range(WORTHWHILE + 20)]
STREAM = StreamIdentifier("123456789012", "s", 1_700_000_000)
READS = {"Scan", "Query", "BatchGetItem", "GetItem"}


class Fleet:
    """A leader, two standbys and two others, which share the leases of a table."""

    def __init__(self, scene: Scene, *more: str, several_streams: bool = False) -> None:
        self.scene, self.table = scene, scene.table
        self.time, self.server = scene.time, scene.server
        self.workers = {
            who: scene.worker(who, several_streams=several_streams)
            for who in (LEADER, *FOLLOWERS, *more)
        }
        self.dead: set[str] = set()
        for key in KEYS:
            row = lease(key)
            scene.table.create(row.in_stream(STREAM) if several_streams else row)
        for _ in range(6):
            self.round()
        assert sum(len(one.held()) for one in self.workers.values()) == len(KEYS)

    def round(self, seconds: float = SOON) -> None:
        """Each worker renews, releases what is asked for, and looks."""
        self.time.now += seconds
        self.renew()
        for who in sorted(self.workers.keys() - self.dead):
            self.workers[who].take()

    def renew(self) -> None:
        for who in self.workers.keys() - self.dead:
            release_asked(self.workers[who])

    def reads(self, who: str) -> Counter[str]:
        """What one look of a worker reads."""
        self.server.kinesis.calls.clear()
        self.workers[who].take()
        return Counter(c.operation for c in self.server.kinesis.calls if c.operation in READS)

    @property
    def leader(self) -> str:
        """The owner of the lock."""
        lock = Coordination.among_leases(self.table).lock()
        assert lock is not None
        return lock.owner

    def held(self, who: str) -> set[str]:
        return set(self.workers[who].held())


@pytest.fixture
def fleet(scene: Scene) -> Fleet:
    return Fleet(scene)


def test_only_the_leader_and_two_standbys_read_the_whole_table(fleet: Fleet) -> None:
    reads = {who: fleet.reads(who) for who in fleet.workers}
    scans = {who for who, calls in reads.items() if calls["Scan"]}
    assert scans == {LEADER, *FOLLOWERS[:STANDBYS]}
    audits = {who: one.snapshot.audits for who, one in fleet.workers.items()}
    assert audits.pop(LEADER) is True, "it sees to leases that are missing, for all"
    for who in fleet.workers.keys() - scans:
        assert reads[who] == {"Query": 1, "BatchGetItem": 1}
        assert audits.pop(who) is False
    assert set(audits.values()) == {None}


def test_workers_of_several_streams_all_read_the_whole_table(scene: Scene) -> None:
    """Each must see the leases of a stream that it alone reads."""
    fleet = Fleet(scene, several_streams=True)
    assert all(fleet.reads(who) == {"Scan": 1} for who in fleet.workers)


def give(fleet: Fleet, *keys: str) -> None:
    """The leader gives new leases to the last worker."""
    fleet.scene.create(*keys)
    for key in keys:
        fleet.table.write(requests.assign(fleet.scene.lease(key), FOLLOWERS[-1]))


def test_a_lease_that_is_to_be_adopted_is_looked_for_sooner(fleet: Fleet) -> None:
    last, interval = fleet.workers[FOLLOWERS[-1]], 1.5
    fleet.time.now += SOON
    last.renew()
    assert not last.take()
    assert last.due_in() == interval, "midway between two rounds of renewals"
    fleet.time.now += 2 * interval
    assert not last.take()
    assert last.due_in() == 2 * interval - interval
    give(fleet, "ended", "given", "stopped")
    row = fleet.scene.lease("ended")
    fleet.table.write(requests.checkpoint(row, ExtendedSequenceNumber(SHARD_END)))
    last.renew()
    fleet.time.now += interval / 2
    assert last.take(busy={"given", "stopped"})
    assert last.held().keys().isdisjoint({"ended", "given", "stopped"})
    assert last.due_in() == interval
    assert last.take(busy={"stopped"}), "the other is still to come"
    assert "given" in last.held()
    assert not last.take(reads=lambda row: row.key != "stopped") or "stopped" not in last.held()
    assert not last.take()
    assert "stopped" in last.held()
    fleet.server.kinesis.calls.clear()
    assert not last.take()
    asked = {call.operation for call in fleet.server.kinesis.calls}
    assert asked == {"Query", "BatchGetItem"}


def test_who_leaves_adopts_nothing_by_a_partial_scan(fleet: Fleet) -> None:
    last = fleet.workers[FOLLOWERS[-1]]
    give(fleet, "given")
    last.take(is_leaving=lambda: True)
    assert "given" not in last.held()


def test_a_lease_adopted_without_an_answer_is_looked_for_in_the_whole_table(fleet: Fleet) -> None:
    last = fleet.workers[FOLLOWERS[-1]]
    give(fleet, "given")
    fleet.server.kinesis.faults = Failing("UpdateItem", then=Fault.dropped("after"))
    with pytest.raises(LeaseTableUnavailableError):
        last.take()
    fleet.server.kinesis.faults = None
    fleet.server.kinesis.calls.clear()
    last.take()
    assert "given" in last.held()
    asked = {call.operation for call in fleet.server.kinesis.calls}
    assert "Scan" in asked
    assert "Query" not in asked


def test_a_row_that_cannot_be_read_and_a_table_that_cannot_be_reached_are_told(
    fleet: Fleet,
) -> None:
    last, key = fleet.workers[FOLLOWERS[-1]], "shardId-000000009999"
    give(fleet, key)
    fleet.scene.break_row(key)
    assert fleet.reads(FOLLOWERS[-1])["Scan"] == 1
    fleet.round()
    fleet.server.kinesis.faults = lambda _: Fault.error("ServiceUnavailable", status=503)
    with pytest.raises(LeaseTableUnavailableError):
        last.take()
    fleet.server.kinesis.faults = None
    assert fleet.reads(FOLLOWERS[-1]) == {"Scan": 1}, "after an outage, nothing else"


def test_a_lease_that_is_lost_during_a_partial_scan_keeps_no_other_from_being_adopted(
    fleet: Fleet,
) -> None:
    last = fleet.workers[FOLLOWERS[-1]]
    give(fleet, "given")
    lost = min(last.held())
    held = last.held()[lost]
    fleet.server.kinesis.faults = lambda call: held.lose("the test says so")
    last.take()
    fleet.server.kinesis.faults = None
    assert "given" in last.held()
    assert lost not in last.held()


@pytest.fixture
def half_a_minute(monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds until the whole table is read again, or an index is asked for: five minutes."""
    monkeypatch.setattr("sparkinesis.lease.assignment.partial_scan.FULL_EVERY", 30.0)
    return 30.0


def test_the_whole_table_is_read_again_after_a_while(half_a_minute: float, fleet: Fleet) -> None:
    last, scans = FOLLOWERS[-1], []
    for _ in range(int(2 * half_a_minute / 3)):
        fleet.time.now += 3.0
        fleet.renew()
        for who in sorted(fleet.workers.keys() - {last}):
            fleet.workers[who].take()
        scans.append(fleet.reads(last)["Scan"])
    assert 1 <= sum(scans) <= 2


def test_a_lease_that_the_leader_gives_is_adopted_without_a_scan(fleet: Fleet) -> None:
    last = fleet.workers[FOLLOWERS[-1]]
    mine = set(last.held())
    fleet.scene.create("new-1", "new-2", "new-3", "new-4", "new-5", "new-6", "new-7", "new-8")
    scans = 0
    for _ in range(10):
        fleet.time.now += SOON
        for who, one in fleet.workers.items():
            release_asked(one)
            if one is last:
                scans += fleet.reads(who)["Scan"]
            else:
                one.take()
    assert set(last.held()) > mine, "the new leases are shared"
    assert scans == 0
    given = {key for key, who in fleet.scene.owners().items() if who == (FOLLOWERS[-1], None)}
    assert given == set(last.held())


def test_a_crash_of_the_leader_and_another_costs_one_failover_time(fleet: Fleet) -> None:
    other = FOLLOWERS[-1]
    lost = fleet.held(LEADER) | fleet.held(other)
    fleet.dead = {LEADER, other}
    for _ in range(int(FAILOVER)):
        fleet.round()
    assert fleet.held(FOLLOWERS[0]).isdisjoint(lost)
    for _ in range(2):  # a look, and the rest of what its plan left to others
        fleet.round(0.1)
    alive = fleet.workers.keys() - fleet.dead
    assert set().union(*(fleet.held(who) for who in alive)) == set(KEYS)


def test_who_has_read_only_its_own_rows_does_not_lead_at_once(fleet: Fleet) -> None:
    """It would not know of leases that have expired; a standby does."""
    fleet.dead = {LEADER, *FOLLOWERS[:STANDBYS]}
    for _ in range(int(FAILOVER) + 1):
        fleet.round()
    assert fleet.leader == LEADER
    for _ in range(int(FAILOVER)):
        fleet.round()
    assert fleet.leader in FOLLOWERS[STANDBYS:]
    assert set().union(*(fleet.held(who) for who in FOLLOWERS[STANDBYS:])) == set(KEYS)


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ValidationException", "ResourceNotFoundException"]
)
def test_without_the_index_the_whole_table_is_read(fleet: Fleet, code: str) -> None:
    last = FOLLOWERS[-1]
    fleet.server.kinesis.faults = Failing("Query", then=Fault.error(code))
    assert fleet.reads(last) == {"Query": 1, "Scan": 1}
    fleet.round()
    assert fleet.reads(last) == {"Scan": 1}, "it does not ask again and again"
    fleet.server.kinesis.faults = None
    began = fleet.time.now - SOON
    while fleet.time.now < began + FULL_EVERY:
        fleet.time.now = min(fleet.time.now + FAILOVER / 2, began + FULL_EVERY)
        fleet.renew()
        fleet.workers[LEADER].take()
    assert fleet.reads(last)["Scan"] == 1
    assert fleet.reads(last)["Query"] == 1, "it asks after five minutes"
    fleet.round()
    assert fleet.reads(last)["Scan"] == 0, "and goes by the index then"


def test_a_worker_that_may_be_java_keeps_all_reading(scene: Scene) -> None:
    fleet = Fleet(scene, "b6a5e6f0-6f0a-4f0e-9d3c-1f2e3d4c5b6a")
    assert all(fleet.reads(who)["Scan"] for who in fleet.workers)


def test_the_policy_allows_what_the_scans_call_and_no_more(fleet: Fleet) -> None:
    fleet.server.kinesis.calls.clear()
    fleet.round()
    fleet.time.now += FULL_EVERY  # the leader sees to the index again
    fleet.round()
    used = {action_of("dynamodb", call.operation) for call in fleet.server.kinesis.calls}
    (worker,) = (each for each in POLICIES if each.name == "worker")
    (own,) = (each for each in POLICIES if each.name == "own-rows")
    assert used - worker.actions == own.actions - {"dynamodb:UpdateTable"}


def test_a_small_table_is_read_whole(scene: Scene) -> None:
    scene.server.kinesis.calls.clear()
    scene.create(*KEYS[: WORTHWHILE - 1])
    workers = [scene.worker(who) for who in (LEADER, *FOLLOWERS)]
    for _ in range(8):
        scene.time.now += SOON
        for one in workers:
            release_asked(one)
            one.take()
    asked = {call.operation for call in scene.server.kinesis.calls}
    assert asked.isdisjoint({"Query", "UpdateTable"})


def test_the_index_is_made_once_and_where_it_costs_no_capacity_of_its_own(
    moto: LocalServer,
) -> None:
    table, dynamodb = table_of(moto, "indexed"), moto.client("dynamodb")
    table.provision(LeaseTableOptions())
    for key, owner in zip("abc", "xxy", strict=True):
        table.create(lease(key, owner))
    assert create_index(table)
    assert create_index(table)
    (index,) = dynamodb.describe_table(TableName=table.name)["Table"]["GlobalSecondaryIndexes"]
    assert index["IndexName"] == OWNER_INDEX
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert sorted(keys_of(table, "x")) == ["a", "b"]
    assert keys_of(table, "nobody") == []
    dynamodb.create_table(
        TableName="provisioned",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        ProvisionedThroughput={"ReadCapacityUnits": 10, "WriteCapacityUnits": 10},
    )
    assert not create_index(table_of(moto, "provisioned"))


def test_rows_are_read_by_the_hundred(scene: Scene) -> None:
    scene.create(*KEYS)
    scene.server.kinesis.calls.clear()
    rows = read_some(scene.table, [*KEYS, "missing"])
    assert {row.key for row in rows.leases} == set(KEYS)
    assert Counter(call.operation for call in scene.server.kinesis.calls) == {"BatchGetItem": 2}
    assert rows.second is not None


def lock_row(fleet: Fleet, **changes: Any) -> None:
    """Change the leader's lock, or delete it."""
    client, key = fleet.scene.dynamodb, {"leaseKey": {"S": "Leader"}}
    if not changes:
        client.delete_item(TableName=fleet.table.name, Key=key)
        return
    item = client.get_item(TableName=fleet.table.name, Key=key)["Item"]
    client.put_item(TableName=fleet.table.name, Item={**item, **changes})


@pytest.mark.parametrize(
    "case", ["deleted", "another's", "expired", "released", "2.x again", "silent"]
)
def test_who_sees_no_lock_of_the_leader_that_it_knows_reads_the_whole_table(
    scene: Scene, fleet: Fleet, case: str
) -> None:
    last = FOLLOWERS[-1]
    assert fleet.reads(last)["Scan"] == 0
    if case == "deleted":
        lock_row(fleet)
    elif case == "another's":
        lock_row(fleet, ownerName={"S": FOLLOWERS[0]})
    elif case == "silent":  # long before its lock expires
        fleet.dead = {LEADER}
        fleet.time.now += FAILOVER / 2 + 0.1
        fleet.renew()
    elif case == "2.x again":
        scene.put_version(VERSION_2X)
    elif case == "released":
        lock_row(fleet, isReleased={"S": "1"})
    else:  # although the leader renews its leases
        fleet.time.now += FAILOVER + 0.1
        fleet.renew()
    assert fleet.reads(last)["Scan"] == 1


def test_who_reads_its_own_rows_tells_its_load_every_half_a_minute(fleet: Fleet) -> None:
    last, client = FOLLOWERS[-1], fleet.scene.dynamodb
    key = {"TableName": fleet.table.name, "Key": {"leaseKey": {"S": last}}}
    client.delete_item(**key)
    for _ in range(8):
        fleet.round(3.0)
        assert fleet.reads(last)["Scan"] == 0
    fleet.time.now += 3.0
    fleet.renew()
    for who in sorted(fleet.workers.keys() - {last}):
        fleet.workers[who].take()
    invalid = Fault.error("ValidationException")
    fleet.server.kinesis.faults = Failing("UpdateItem", then=invalid)
    assert fleet.reads(last)["Scan"] == 1, "it tells the trouble by a look at all"
    fleet.server.kinesis.faults = None
    fleet.workers[last].take()
    assert "lut" in client.get_item(**key)["Item"]


def test_a_missing_index_is_told_once_and_asked_for_again(
    half_a_minute: float, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.create(*KEYS)
    leader, time = scene.worker(LEADER), scene.time
    asked: list[float] = []

    def refuse(call: Call) -> Fault | None:
        if call.operation != "DescribeTable":
            return None
        asked.append(time.now)
        return Fault.error("AccessDeniedException")

    scene.server.kinesis.faults = refuse
    began = time.now
    for seconds in (0.0, half_a_minute - 0.1, half_a_minute, 2 * half_a_minute):
        time.now = began + seconds
        leader.renew()
        leader.take()
    assert asked == [began, began + half_a_minute, began + 2 * half_a_minute]
    assert caplog.text.count("The index of the lease table by owner is not created") == 1
