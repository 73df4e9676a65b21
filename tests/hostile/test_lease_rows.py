"""Rows of a lease table that no KCL wrote: read rightly, told of once, and in nobody else's way."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.rules.audit import auditor, deletable, find_hole
from sparkinesis.lease.rules.observations import observe
from sparkinesis.lease.rules.taker import TakeSettings, plan_takes
from sparkinesis.lease.table.rows import BrokenLease, read_row, read_rows
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.lease_report import top_object, top_view
from sparkinesis.monitor.watched import WatchedTable, unread_hash_keys
from sparkinesis.worker.lifecycle.worker import Worker
from tests import pace
from tests.examples import examples
from tests.journal import Journal, Journaling
from tests.kcl import create_table, rows_of
from tests.local_application import local_application
from tests.streams import put_at

SHARDS = 6
IDS = [f"shardId-{n:012d}" for n in range(SHARDS)]


def row(shard: str = IDS[0], **changes: Any) -> dict[str, Any]:
    """A sound row, with other attributes; without those that are None."""
    item = encode_lease(Lease(shard, shard, ExtendedSequenceNumber("5"), hash_range=(0, 9)))
    return {name: value for name, value in {**item, **changes}.items() if value is not None}


BREAKS: dict[str, dict[str, Any]] = {
    "a counter that is text": {"leaseCounter": {"S": "5"}},
    "a counter with a fraction": {"leaseCounter": {"N": "5.5"}},
    "no counter": {"leaseCounter": None},
    "a counter that none counted": {"leaseCounter": {"N": "9" * 38}},
    "no checkpoint": {"checkpoint": None},
    "a checkpoint that is no place": {"checkpoint": {"S": "the beginning"}},
    "a checkpoint of other digits": {"checkpoint": {"S": "\u0661\u0662"}},
    "a checkpoint of thousands of digits": {"checkpoint": {"S": "9" * 5000}},
    "a checkpoint that is a number": {"checkpoint": {"N": "5"}},
    "a negative sub-sequence number": {"checkpointSubSequenceNumber": {"N": "-1"}},
    "a sub-sequence number that is text": {"checkpointSubSequenceNumber": {"S": "0"}},
    "a pending checkpoint that is no place": {"pendingCheckpoint": {"S": "x"}},
    "switches that cannot be counted on": {"ownerSwitchesSinceCheckpoint": {"S": "0"}},
    "parents that are no set": {"parentShardId": {"L": [{"S": IDS[1]}]}},
    "an instant of no year": {"checkpointTimestamp": {"N": "1E+30"}},
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_no_kcl_writes_is_told_and_not_guessed(name: str) -> None:
    (attribute,) = BREAKS[name]
    found = read_row(row(**BREAKS[name]))
    assert isinstance(found, BrokenLease)
    assert found.key == IDS[0]
    assert attribute in found.why
    assert len(str(found)) < 300
    # Of another library's row, nothing is said.
    assert read_row({**row(**BREAKS[name]), "leaseKey": {"S": "counter#7"}}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"startingHashKey": {"S": "9" * 5000}},
        {"startingHashKey": {"S": "-1"}},
        {"endingHashKey": {"S": str(2**128)}},
        {"startingHashKey": {"S": "10"}},  # behind its end
        {"endingHashKey": {"N": "9"}},
    ],
)
def test_hash_keys_that_are_none_are_looked_up_anew(changes: dict[str, Any]) -> None:
    found = read_row(row(**changes))
    assert isinstance(found, Lease)
    assert found.hash_range is None


numbers = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1).map(str),
    st.sampled_from(["0", "1.5", "-1", "1E+125", "1E-130", "9223372036854775808"]),
)
texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "5", "SHARD_END", "LATEST", "9" * 5000, "x" * 1000, *IDS]),
)
values: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"S": texts}),
        st.fixed_dictionaries({"N": numbers}),
        st.fixed_dictionaries({"B": st.binary(max_size=9)}),
        st.fixed_dictionaries({"BOOL": st.booleans()}),
        st.just({"NULL": True}),
        st.fixed_dictionaries({"SS": st.lists(texts, min_size=1, max_size=3, unique=True)}),
        st.fixed_dictionaries({"NS": st.lists(numbers, min_size=1, max_size=3, unique=True)}),
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"L": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"M": st.dictionaries(st.text(max_size=5), inner, max_size=3)}),
    ),
    max_leaves=4,
)
names = st.sampled_from(
    [
        *("checkpoint", "checkpointSubSequenceNumber", "leaseCounter", "leaseOwner"),
        *("ownerSwitchesSinceCheckpoint", "parentShardId", "childShardIds", "startingHashKey"),
        *("endingHashKey", "checkpointOwner", "throughputKBps", "pendingCheckpoint"),
        *("pendingCheckpointSubSequenceNumber", "pendingCheckpointState", "checkpointTimestamp"),
        *("streamName", "shardId", "entityType", "foreign"),
    ]
)
keys = st.one_of(
    st.sampled_from(IDS),
    st.text(min_size=1, max_size=20),
    st.sampled_from(IDS).map(lambda shard: f"123456789012:flights:1763700000:{shard}"),
)
items = st.builds(
    lambda key, changes, gone: {
        "leaseKey": {"S": key},
        **{name: value for name, value in row().items() if name not in {*gone, "leaseKey"}},
        **changes,
    },
    keys,
    st.dictionaries(names, values, max_size=4),
    st.lists(names, max_size=1),
)
SETTINGS = TakeSettings(
    failover_time=10, max_leases=100, max_leases_to_steal=3, handoff_timeout=30, scan_interval=2
)


@settings(deadline=None, max_examples=examples(80))
@given(st.lists(items, max_size=8, unique_by=lambda item: str(item["leaseKey"])))
@example([row(parentShardId={"SS": [IDS[0]]})])
@example([row(IDS[n], parentShardId={"SS": [IDS[(n + 1) % 3]]}) for n in range(3)])
def test_any_table_can_be_looked_at_and_decided_upon(table: list[dict[str, Any]]) -> None:
    scan = read_rows(table)
    sound, broken = {one.key for one in scan.leases}, {one.key for one in scan.broken}
    assert sound | broken <= {item["leaseKey"]["S"] for item in table}
    assert not sound & broken
    own = scan.single_stream
    assert not any(":" in one.key for one in own.leases)
    assert not any(":" in one.key for one in own.broken)
    seen = observe({}, scan.leases, 0.0, "me")
    plan = plan_takes(scan.leases, seen, "me", 100.0, SETTINGS, rng=random.Random(1))
    assert {one.key for one in (*plan.take, *plan.steal)} <= {one.key for one in scan.leases}
    find_hole(scan.leases)
    auditor(scan.leases, ())
    deletable(scan.leases, None)
    for one in scan.leases:
        assert one.checkpoint < ExtendedSequenceNumber("SHARD_END", 1) or one.is_finished
    watched = WatchedTable().after_scan(scan.leases, 1.0, scan.broken)
    shown = ApplicationSnapshot.of(watched, {})
    told = top_view("t", "s", shown)
    assert len(told.messages) == len(scan.broken) + len(unread_hash_keys(watched))
    assert set(top_object("t", None, shown)["broken_leases"]) == {one.key for one in scan.broken}


def test_circles_are_told_and_what_waits_for_them_is_not() -> None:
    parents = {0: [1], 1: [2], 2: [0], 3: [0], 4: [4], 5: [7]}
    scan = read_rows(
        [
            row(IDS[n], parentShardId={"SS": [f"shardId-{p:012d}" for p in ps]})
            for n, ps in parents.items()
        ]
    )
    assert sorted(one.key for one in scan.broken) == [IDS[n] for n in (0, 1, 2, 4)]
    assert sorted(one.key for one in scan.leases) == [IDS[n] for n in (3, 5)]
    ended: dict[str, Any] = {"parentShardId": {"SS": [IDS[0]]}, "checkpoint": {"S": "SHARD_END"}}
    assert not read_rows([row(**ended)]).broken


# A real worker, on a table that is edited by hand.


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def stream(server: LocalServer) -> str:
    name = f"s-{uuid.uuid4().hex[:8]}"
    server.client("kinesis").create_stream(StreamName=name, ShardCount=SHARDS)
    return name


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def start(server: LocalServer, stream: str, journal: Journal) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def run() -> Worker:
        worker = local_application(
            stream,
            server.endpoint_url,
            lambda: Journaling(journal),
            failover_time=pace.seconds(1.5),
            idle_time=0.25,
            audit_interval=0.5,
        ).worker()
        workers.append(worker)
        return worker.start()

    yield run
    for worker in workers:
        worker.shutdown(10)


def put_into(kinesis: Any, stream: str, shard: int, data: bytes) -> None:
    put_at(kinesis, stream, data, hash_key=2**128 // SHARDS * shard + 10)


def edit(dynamodb: Any, table: str, item: dict[str, Any]) -> None:
    dynamodb.put_item(TableName=table, Item=item)


def fill(dynamodb: Any, table: str, item: dict[str, Any]) -> None:
    """A row that is sound, but has no room for what a worker writes."""
    for size in range(405_000, 404_000, -20):
        try:
            return edit(dynamodb, table, {**item, "notes": {"S": "x" * size}})
        except dynamodb.exceptions.ClientError:
            continue
    raise AssertionError("there is no such size")


FOREIGN: list[dict[str, Any]] = [
    {"leaseKey": {"S": "lock#1"}, "checkpoint": {"N": "7"}, "ttl": {"N": "1763713014"}},
    {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "leaseCounter": {"S": "x"}},
    {"leaseKey": {"S": "acct:other:shardId-000000000000:x"}},
]


def test_a_worker_on_a_broken_table_reads_what_is_sound_and_the_rest_once_mended(
    start: Callable[[], Worker],
    server: LocalServer,
    stream: str,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinesis, dynamodb = server.client("kinesis"), server.client("dynamodb")
    create_table(dynamodb, stream)
    shards = {
        one["ShardId"]: one["HashKeyRange"]
        for one in kinesis.list_shards(StreamName=stream)["Shards"]
    }
    sound = {
        shard: encode_lease(
            Lease(
                shard,
                shard,
                ExtendedSequenceNumber("TRIM_HORIZON"),
                hash_range=(int(keys["StartingHashKey"]), int(keys["EndingHashKey"])),
            )
        )
        for shard, keys in shards.items()
    }
    broken: dict[str, dict[str, Any]] = {
        IDS[1]: {"leaseCounter": {"S": "5"}},
        IDS[2]: {"checkpoint": {"S": "the beginning"}},
        IDS[3]: {"parentShardId": {"SS": [IDS[3]]}},
        IDS[4]: {},
    }
    for shard in IDS:
        edit(dynamodb, stream, {**sound[shard], **broken.get(shard, {})})
    fill(dynamodb, stream, sound[IDS[4]])
    for item in FOREIGN:
        edit(dynamodb, stream, item)
    for n in range(SHARDS):
        put_into(kinesis, stream, n, b"%d" % n)
    with caplog.at_level(logging.INFO, logger="sparkinesis"):
        worker = start()
        journal.wait_for_data(b"0", b"5")
        looks = worker._coordinator.snapshot.at
        for _ in range(4):  # looks at the table
            pace.eventually(lambda: worker._coordinator.snapshot.at != looks)  # noqa: B023
            looks = worker._coordinator.snapshot.at
        assert set(journal.data()) == {b"0", b"5"}
        told = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert {shard: sum(shard in line for line in told) for shard in IDS} == {
            IDS[0]: 0,
            **dict.fromkeys(broken, 1),
            IDS[5]: 0,
        }, told
        for shard in broken:
            edit(dynamodb, stream, sound[shard])
        journal.wait_for_data(*(b"%d" % n for n in range(SHARDS)))
    rows = rows_of(dynamodb, stream)
    assert [rows[item["leaseKey"]["S"]] for item in FOREIGN] == FOREIGN


def test_children_wait_for_a_parent_whose_row_is_broken(
    server: LocalServer, stream: str, journal: Journal, start: Callable[[], Worker]
) -> None:
    """Or what came after would be delivered before what its parent still holds."""
    kinesis, dynamodb = server.client("kinesis"), server.client("dynamodb")
    put_into(kinesis, stream, 0, b"parent")
    middle = str(2**128 // SHARDS // 2)
    kinesis.split_shard(StreamName=stream, ShardToSplit=IDS[0], NewStartingHashKey=middle)
    children = [f"shardId-{n:012d}" for n in (SHARDS, SHARDS + 1)]
    put_into(kinesis, stream, 0, b"child")
    create_table(dynamodb, stream)
    trim = ExtendedSequenceNumber("TRIM_HORIZON")
    parent = encode_lease(Lease(IDS[0], IDS[0], trim))
    edit(dynamodb, stream, {**parent, "checkpoint": {"S": "?"}})
    for child in children:
        edit(dynamodb, stream, encode_lease(Lease(child, child, trim, parent_ids=(IDS[0],))))
    for shard in IDS[1:]:
        edit(dynamodb, stream, encode_lease(Lease(shard, shard, trim)))
    put_into(kinesis, stream, 1, b"other")
    start()
    journal.wait_for_data(b"other")
    assert journal.data() == [b"other"]
    edit(dynamodb, stream, parent)
    journal.wait_for_data(b"child")
    assert journal.data() == [b"other", b"parent", b"child"]


def test_who_must_know_where_all_shards_stand_is_told_what_is_broken(
    server: LocalServer, stream: str
) -> None:
    dynamodb = server.client("dynamodb")
    create_table(dynamodb, stream)
    for shard in IDS[1:]:
        edit(dynamodb, stream, row(shard))
    edit(dynamodb, stream, row(IDS[0], checkpoint=None))
    table = LeaseTable(stream, "us-east-1", server.endpoint_url)
    says = f"{IDS[0]}.*checkpoint is missing.*Repair"
    looks = (table.leases, lambda: table.sound(table.scan().of(None)), lambda: table.get(IDS[0]))
    for look in looks:
        with pytest.raises(LeaseTableError, match=says):
            look()
    assert len(table.scan().leases) == SHARDS - 1
