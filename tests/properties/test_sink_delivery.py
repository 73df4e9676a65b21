"""The sink: every row is stored, order is kept where asked, and aggregates suit every reader."""

from __future__ import annotations

import base64
import math
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from sparkinesis.errors import AccessDeniedError, RecordRefusedError, ServiceError
from sparkinesis.local import Call, Fault, FaultPlan, LocalServer, ManualClock
from sparkinesis.source.options.checked_options import write_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.writing import write_batches
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.shard import hash_key
from tests.engine import Row as ReadRow
from tests.engine import query_of
from tests.properties.conftest import World
from tests.sink import Row, arrow, write
from tests.streams import merge_neighbours, shard_ids, split

AGGREGATED = {"aggregation": "true", "aggregationMaxSize": "2000"}
MODES = {
    "plain": {},
    "ordered": {"ordered": "true"},
    "aggregated": AGGREGATED,
    "aggregated, ordered": {**AGGREGATED, "ordered": "true"},
}


def numbered(count: int, keys: int, size: int = 20) -> list[Row]:
    """Rows whose data begins with their number; a tenth of the keys have an explicit hash key."""
    rng = random.Random(count)
    rows: list[Row] = []
    for n in range(count):
        key = rng.randrange(keys)
        explicit = str(hash_key(f"other {key}", None)) if key % 10 == 0 else None
        rows.append((f"k{key}", explicit, b"%08d" % n + bytes(rng.randrange(size))))
    return rows


def in_parts(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def read_back(server: LocalServer) -> list[ReadRow]:
    """What our own source reads, in the order of each shard, parents first."""
    query = query_of(server, shardBytesPerSecond="unlimited")
    return [row for batch in query.drain() for row in batch.rows]


def keyed(rows: list[ReadRow]) -> list[tuple[str, bytes]]:
    return [(row["partitionKey"], row["data"]) for row in rows]


def written(rows: list[Row]) -> list[tuple[str | None, bytes | None]]:
    return [(key, data) for key, _, data in rows]


def in_order(rows: list[ReadRow]) -> bool:
    """Whether the numbers of each key rise, once what is stored again is left out."""
    last: defaultdict[str, int] = defaultdict(lambda: -1)
    for key, data in dict.fromkeys(keyed(rows)):
        if int(data[:8]) <= last[key]:
            return False
        last[key] = int(data[:8])
    return True


def kept_by_a_kcl(kinesis: Any, rows: list[ReadRow]) -> set[tuple[str, bytes]]:
    """All but the aggregates that hold a user record of another shard's hash range."""
    ranges = {
        shard["ShardId"]: range(
            int(shard["HashKeyRange"]["StartingHashKey"]),
            int(shard["HashKeyRange"]["EndingHashKey"]) + 1,
        )
        for shard in kinesis.list_shards(StreamName="s")["Shards"]
    }
    records: defaultdict[tuple[str, str], list[ReadRow]] = defaultdict(list)
    for row in rows:
        records[row["shardId"], row["sequenceNumber"]].append(row)
    kept: set[tuple[str, bytes]] = set()
    for (shard, _), members in records.items():
        keys = [hash_key(row["partitionKey"], row["explicitHashKey"]) for row in members]
        if len(members) == 1 or all(key in ranges[shard] for key in keys):
            kept.update(keyed(members))
    return kept


def test_an_explicit_hash_key_leads_to_its_shard(world: World) -> None:
    first, last = "0", str(2**128 - 1)
    rows: list[Row] = [("k", first if n % 2 else last, b"%d" % n) for n in range(100)]
    for options in ({}, AGGREGATED):
        write(world.server.endpoint_url, [rows], **options)
    world.clock.advance(60_000)
    shards = dict(zip(shard_ids(world.kinesis, "s"), (1, 0), strict=True))
    assert {(row["shardId"], int(row["data"]) % 2) for row in read_back(world.server)} == set(
        shards.items()
    )


@pytest.mark.parametrize("mode", ["aggregated", "aggregated, ordered"])
def test_the_public_deaggregator_reads_the_aggregates(world: World, mode: str) -> None:
    rows = numbered(3000, keys=300)
    write(world.server.endpoint_url, [rows], **MODES[mode])
    found = []
    for shard in shard_ids(world.kinesis, "s"):
        iterator = world.kinesis.get_shard_iterator(
            StreamName="s", ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records = world.kinesis.get_records(ShardIterator=iterator)["Records"]
        assert max(len(record["Data"]) for record in records) <= 2000
        for user in iter_deaggregate_records(records, "Boto3"):
            plain = user.get("kinesis") or {"partitionKey": user["PartitionKey"]}
            data = base64.b64decode(plain["data"]) if "kinesis" in user else user["Data"]
            found.append((plain["partitionKey"], data))
    assert Counter(found) == Counter(written(rows))


def refuse_some(call: Call) -> Fault | None:
    if call.operation != "PutRecords" or call.ordinal % 4 == 3:
        return None
    code = "InternalFailure" if call.ordinal % 2 else "ProvisionedThroughputExceededException"
    chosen = random.Random(call.ordinal).sample(range(500), 250)
    return Fault(code=code, entries=frozenset(chosen))


def drop_some(call: Call) -> Fault | None:
    if call.operation != "PutRecords" or call.ordinal % 3:
        return None
    return Fault.dropped("after" if call.ordinal % 2 else "before")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("faults", [refuse_some, drop_some])
def test_no_row_is_lost_and_order_is_kept_while_calls_fail(
    world: World, mode: str, faults: FaultPlan
) -> None:
    rows = numbered(3000, keys=40)
    world.server.kinesis.faults = faults
    write_batches(
        write_options(Options({**place(world.server), **MODES[mode]})),
        [arrow(part) for part in in_parts(rows, 1000)],
        retry=Backoff(base=0.001, cap=0.002),
    )
    world.clock.advance(60_000)
    world.server.kinesis.faults = None
    found = read_back(world.server)
    assert set(keyed(found)) == set(written(rows))
    if faults is refuse_some:
        assert len(found) == len(rows), "only refused entries are put again"
    if "ordered" in mode:
        assert in_order(found)


def place(server: LocalServer) -> dict[str, str]:
    return {"streamName": "s", "endpoint": server.endpoint_url, "region": "us-east-1"}


@pytest.mark.parametrize("mode", ["ordered", "aggregated", "aggregated, ordered"])
def test_shards_that_split_and_merge_while_written(world: World, mode: str) -> None:
    """A KCL drops an aggregate with a user record out of its shard's range: it is put again."""
    rows = numbered(6000, keys=100)
    changes: dict[int, Callable[[], object]] = {
        4: lambda: split(world.kinesis, "s"),
        8: lambda: split(world.kinesis, "s", index=2),
        12: lambda: merge_neighbours(world.kinesis, "s", index=1),
    }

    def batches() -> Iterator[list[Row]]:
        """Resharding while what came before is under way; what comes next is packed for before."""
        for number, part in enumerate(in_parts(rows, 400)):
            if number in changes:
                changes[number]()
            yield part

    write(world.server.endpoint_url, batches(), **MODES[mode])
    world.clock.advance(60_000)
    assert len(shard_ids(world.kinesis, "s")) == 7
    found = read_back(world.server)
    assert set(keyed(found)) == set(written(rows))
    assert kept_by_a_kcl(world.kinesis, found) == set(written(rows))
    if "ordered" in mode:
        assert in_order(found)


def test_it_gives_up_when_nothing_is_taken_and_says_why(world: World) -> None:
    world.server.kinesis.faults = lambda call: (
        Fault(code="ProvisionedThroughputExceededException", entries=frozenset(range(500)))
        if call.operation == "PutRecords"
        else None
    )
    with pytest.raises(ServiceError) as caught:
        write_batches(
            write_options(Options(place(world.server))),
            [arrow(numbered(700, keys=5))],
            retry=Backoff(base=0.001, cap=0.002, give_up_after=0.2),
        )
    said = str(caught.value)
    assert "PutRecords failed on stream 's'" in said
    assert "none of this task's 700 remaining records" in said
    assert "ProvisionedThroughputExceededException (" in said
    assert "add shards" in said
    assert "\n" not in said


def test_the_time_that_spark_takes_for_more_rows_does_not_count_as_refused(world: World) -> None:
    """The first call is refused, and the next Arrow batch takes ten minutes to compute."""
    waited = ManualClock(0)
    answered = threading.Event()

    def sleep(seconds: float) -> None:
        waited.advance(math.ceil(seconds * 1000))

    def refuse_first(call: Call) -> Fault | None:
        if call.operation != "PutRecords" or call.ordinal > 1:
            return None
        answered.set()
        return Fault(code="ProvisionedThroughputExceededException", entries=frozenset(range(500)))

    world.server.kinesis.faults = refuse_first
    rows = numbered(20, keys=5)

    def batches() -> Iterator[pa.RecordBatch]:
        yield arrow(rows[:10])
        assert answered.wait(30)
        waited.advance(600_000)
        yield arrow(rows[10:])

    write_batches(
        write_options(Options(place(world.server))),
        batches(),
        retry=Backoff(clock=lambda: waited() / 1000, sleep=sleep),
    )
    world.clock.advance(60_000)
    assert Counter(keyed(read_back(world.server))) == Counter(written(rows))


def test_a_missing_permission_is_named_at_once(world: World) -> None:
    world.server.kinesis.faults = lambda call: Fault.error("AccessDeniedException", "no")
    with pytest.raises(AccessDeniedError, match="kinesis:PutRecords and kinesis:ListShards"):
        write(world.server.endpoint_url, [numbered(10, keys=5)])
    assert world.server.kinesis.calls.count("PutRecords") == 1


@pytest.mark.parametrize("most", [1 << 20, 2000])
@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_cannot_be_a_record_stops_its_batch_before_anything_is_put(
    world: World, mode: str, most: int
) -> None:
    bad: Row = ("k" * 100, None, bytes(most - 99))
    rows, limit = [*numbered(600, keys=5), bad], {"maxRecordSize": str(most)}
    with pytest.raises(
        RecordRefusedError, match=f"have {most + 1:,} bytes, but the limit is {most:,}"
    ):
        write(world.server.endpoint_url, [rows], **MODES[mode], **limit)
    assert world.server.kinesis.calls.count("PutRecords") == 0
