"""A stream of 10,000 shards: calls, time and space grow with the shards, and not faster."""

from __future__ import annotations

import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.children import orphaned_children
from sparkinesis.lease.rules.lease_start import LeaseStart, new_lease
from sparkinesis.lease.rules.reset_plan import plan_reset
from sparkinesis.lease.rules.shard_sync import leases_for_partial_table
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.shards.shard_syncer import ShardSyncer, ShardSyncSettings
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalKinesis
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.lease_report import top_view
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.source.offsets import to_json
from sparkinesis.source.options.checked_options import stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.planning.application_position import resume
from sparkinesis.source.planning.batch_end import Finding, Finished, NoRows
from sparkinesis.source.planning.source_planner import SourcePlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AfterRecord, AtTimestamp
from sparkinesis.stream.shard import Lineage, Shard
from sparkinesis.terminal.live import render
from tests.hostile.in_process import in_process
from tests.planners import plan

SHARDS = 10_000
STREAM = StreamAddress("wide", region="us-east-1")
MAX_HASH_KEY = 2**128 - 1
BEGIN = LeaseStart(TRIM_HORIZON)


@pytest.fixture(scope="module", params=[SHARDS // 5, pytest.param(SHARDS, marks=pytest.mark.long)])
def count(request: pytest.FixtureRequest) -> int:
    """The shards of the stream that is called."""
    return int(request.param)


@pytest.fixture(scope="module")
def kinesis(count: int) -> LocalKinesis:
    found = LocalKinesis(limits=False)
    call(found, "CreateStream", StreamName="wide", ShardCount=count)
    return found


def call(kinesis: LocalKinesis, operation: str, **request: object) -> None:
    outcome = kinesis.serve(operation, msgspec.json.encode(request), region="us-east-1")
    assert outcome.error is None, outcome.body


@pytest.fixture
def calls(kinesis: LocalKinesis) -> Iterator[Counter[str]]:
    with in_process(kinesis, "app") as counted:
        yield counted


def test_a_batch_is_planned_with_a_few_calls_for_each_shard(
    kinesis: LocalKinesis,
    calls: Counter[str],
    count: int,
    record_property: Callable[[str, object], None],
) -> None:
    options = {"streamName": "wide", "region": "us-east-1", "initialPosition": "trim_horizon"}
    planner = SourcePlanner(
        stream_read_options(
            Options({**options, "shardCallsPerSecond": "unlimited", "minFetchPeriod": "0s"})
        )
    )
    for n in range(0, count, 100):
        hash_key = str(MAX_HASH_KEY // count * n + 1)
        call(
            kinesis,
            "PutRecord",
            StreamName="wide",
            Data="aGk=",
            PartitionKey="k",
            ExplicitHashKey=hash_key,
        )
    offset = {"wide": {"*": TRIM_HORIZON}}
    began = time.monotonic()
    first = planner.next_offset(offset)
    record_property("seconds of the first plan", time.monotonic() - began)
    record_property("bytes of the offset", len(json.dumps(to_json(first))))
    assert len(first["wide"]) == count
    assert calls["ListShards"] <= 1 + count // 1000
    assert calls["GetShardIterator"] <= count + count // 100
    assert calls["GetRecords"] <= count + 3 * count // 100
    assert len(json.dumps(to_json(first))) < 120 * count
    before = calls.copy()
    assert planner.next_offset(first) is first
    more = calls - before
    assert more.total() <= 2 * count


def settings() -> ShardSyncSettings:
    return ShardSyncSettings(120, 3, 60, True, True)


def test_a_fleet_shares_the_leases_with_a_few_calls_for_each(
    calls: Counter[str], count: int
) -> None:
    now = 0.0
    table = LeaseTable("app", "us-east-1")
    workers = []
    for n in range(2):
        client = StreamClient(STREAM)
        leases = StreamLeases(client, table, f"w{n}", initial=LATEST, wait=lambda _: None)
        leases.identify()
        ShardSyncer(leases, settings=settings(), clock=lambda: now, phase=0.0).sync()
        renewer = LeaseRenewer(table, f"w{n}", 10.0, lambda: now)
        take = TakeSettings(
            failover_time=10,
            max_leases=2**31,
            max_leases_to_steal=1,
            handoff_timeout=30,
            scan_interval=1,
        )
        workers.append(
            LeaseCoordinator(
                table, renewer, f"w{n}", settings=take, clock=lambda: now, rng=random.Random(n)
            )
        )
    # One made them, and the others had a look.
    assert calls["PutItem"] == count
    assert calls["ListShards"] <= 1 + count // 1000
    rounds = 0
    while sum(len(worker.held()) for worker in workers) < count:
        for worker in workers:
            worker.take()
        now += 1.5
        rounds += 1
        assert rounds < 5
    # Each was taken once, 25 in a call, but for those that a worker without any asked another one
    # for; and each worker probes whether the server heeds conditions.
    assert calls["UpdateItem"] <= 2 * rounds
    assert calls["BatchExecuteStatement"] <= count // 25 + 2 * (rounds + 1)
    assert calls["Scan"] <= 2 * (2 + rounds)
    before = calls["BatchExecuteStatement"]
    workers[0].renew()
    held = len(workers[0].held())
    assert calls["BatchExecuteStatement"] == before - (-held // 25)


def chain(length: int) -> list[Shard]:
    """Each the only child of the one before it, as after as many merges and splits."""
    ids = [f"shardId-{n:012d}" for n in range(length)]
    return [
        Shard(
            shard,
            tuple(ids[n - 1 : n]) if n else (),
            n == length - 1,
            (0, MAX_HASH_KEY),
            str(10**55 + n),
        )
        for n, shard in enumerate(ids)
    ]


def test_decisions_on_thousands_of_generations_do_not_take_the_square_of_them() -> None:
    shards = chain(SHARDS)
    lineage = Lineage.of(shards)
    leases = [new_lease(shard, TRIM_HORIZON) for shard in shards]
    done = [replace(one, checkpoint=ExtendedSequenceNumber(SHARD_END)) for one in leases[:-1]]
    began = time.process_time()
    assert [one.key for one in orphaned_children(done, shards, BEGIN)] == [shards[-1].id]
    assert not leases_for_partial_table(shards, leases[:1], BEGIN, TRIM_HORIZON)
    assert len(plan_reset(leases, shards, TRIM_HORIZON, 1)) >= 1
    by_id = {one.shard_id: one for one in leases}
    table = LeaseTable("app")
    assert resume(by_id, lineage, 1, address=STREAM, table=table) == {shards[0].id: TRIM_HORIZON}
    # A square of 10,000 takes a minute at least.
    assert time.process_time() - began < 20


class CountedLineage(Lineage, frozen=True):
    """Counts how often it is asked for a shard's relations."""

    asked = 0

    def children(self, shard_id: str) -> tuple[str, ...]:
        CountedLineage.asked += 1
        return super().children(shard_id)

    def listed_parents(self, shard_id: str) -> tuple[str, ...]:
        CountedLineage.asked += 1
        return super().listed_parents(shard_id)


def test_a_plan_through_thousands_of_empty_generations_asks_for_each_a_few_times() -> None:
    shards = chain(SHARDS)
    first, *_, last = shards
    findings: dict[str, Finding] = {shard.id: Finished() for shard in shards[:-1]}
    CountedLineage.asked = 0
    lineage = CountedLineage.of(shards)
    planned = plan({first.id: AfterRecord("1")}, lineage, {**findings, last.id: NoRows(5)})
    assert planned.end == {last.id: AtTimestamp(5)}
    assert SHARDS <= CountedLineage.asked <= 6 * SHARDS


def test_the_view_of_thousands_of_shards_fits_and_is_made_in_no_time() -> None:
    leases = [
        replace(new_lease(shard, TRIM_HORIZON), owner=f"worker-{n % 16}", counter=n)
        for n, shard in enumerate(chain(SHARDS))
    ]
    watched = WatchedTable().after_scan(leases, 1.0).after_scan(leases, 2.0)
    began = time.process_time()
    view = top_view("app", "summary", ApplicationSnapshot.of(watched, {}))
    out = io.StringIO()
    Console(file=out, width=120, height=40).print(render(view, 120, 40))
    assert time.process_time() - began < 10
    lines = out.getvalue().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
