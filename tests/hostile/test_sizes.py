"""The largest and the smallest that the service takes, through both doors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.worker.batches.batch import make_batch
from tests.engine import query_of

MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=ManualClock(1_790_000_000_000)) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    return client


def by_the_source(server: LocalServer) -> list[tuple[str, bytes, int]]:
    query = query_of(server)
    rows = [row for batch in query.drain() for row in batch.rows]
    query.reader.stop()
    return [(row["partitionKey"], row["data"], row["subSequenceNumber"]) for row in rows]


def by_a_worker(server: LocalServer) -> list[tuple[str | None, bytes, int]]:
    client = StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))
    iterator: str | None = client.shard_iterator("shardId-000000000000", TRIM_HORIZON)
    found = []
    while iterator is not None:
        fetched = client.get_records("shardId-000000000000", iterator, 10_000)
        page, iterator = fetched.page, fetched.page.next_shard_iterator
        batch, _ = make_batch(
            page.records,
            stream="s",
            shard_id="shardId-000000000000",
            millis_behind_latest=page.millis_behind_latest,
            fetched_ms=0,
        )
        found += [(r.partition_key, r.data, r.sub_sequence_number) for r in batch.records]
        if not page.millis_behind_latest:
            break
    return found


def test_the_largest_records_and_pages_and_the_emptiest(server: LocalServer, kinesis: Any) -> None:
    smiles = "\U0001f600" * 256
    odd = ["\x00", "\u202e", "\ufffe", "\u0130", " ", "k" * 256, smiles, "\r\n"]
    # With its key a record has 1 MiB at most.
    large = [("k", bytes([n]) * (MIB - 1)) for n in range(11)]
    small = [(key, b"") for key in odd]
    for key, data in [*large, *small]:
        kinesis.put_record(StreamName="s", Data=data, PartitionKey=key)
    expected = [(key, data, 0) for key, data in [*large, *small]]
    assert by_the_source(server) == expected
    assert by_a_worker(server) == expected


def test_a_full_put_and_an_aggregate_of_tens_of_thousands(
    server: LocalServer, kinesis: Any
) -> None:
    entries = [{"Data": b"%d" % n, "PartitionKey": f"k{n}"} for n in range(500)]
    answer = kinesis.put_records(StreamName="s", Records=entries)
    assert answer["FailedRecordCount"] == 0
    users: list[OutgoingRecord] = [(f"u{n % 97}", None, b"%d" % n) for n in range(70_000)]
    blob = next(iter(aggregate(users, MIB - 1)))
    assert blob.count > 50_000
    kinesis.put_record(StreamName="s", Data=blob.data, PartitionKey="a")
    expected = [(f"k{n}", b"%d" % n, 0) for n in range(500)]
    expected += [
        (key, data, sub) for sub, (key, _, data) in enumerate(itertools.islice(users, blob.count))
    ]
    assert by_the_source(server) == expected
    assert by_a_worker(server) == expected
