"""Answers that no service gives: each operation is tried again, and then fails by name.

A table of answers, played to each operation by the direct client and, behind a proxy, by botocore.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.stream_identity import list_streams
from sparkinesis.stream.fan_out.registered_consumers import list_consumers
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.put_entry import plain_entries
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.integration.stream.direct.raw_server import Behaviour, close, http, serving

Call = Callable[[StreamClient, LeaseTable], object]
SHARD = "shardId-000000000000"
HELD = Lease("k", "k", ExtendedSequenceNumber("5"), owner="w", counter=7)
CALLS: dict[str, Call] = {
    "DescribeStreamSummary": lambda stream, _: stream.describe(),
    "ListShards": lambda stream, _: stream.list_shards(),
    "ListStreams": lambda stream, _: list_streams(stream, ["s"], 1),
    "GetShardIterator": lambda stream, _: stream.shard_iterator(SHARD, TRIM_HORIZON),
    "GetRecords": lambda stream, _: stream.get_records(SHARD, "i", 1),
    "PutRecords": lambda stream, _: stream.put_records(
        plain_entries([("k", None, b"d")], ordered=False)
    ),
    "ListStreamConsumers": lambda stream, _: list_consumers(stream, "arn"),
    "Scan": lambda _, table: table.leases(),
    "GetItem": lambda _, table: table.get("k"),
    "UpdateItem": lambda _, table: table.write(requests.release(HELD, "w")),
    "DescribeTable": lambda _, table: table.provision(LeaseTableOptions()),
}


def said(body: object, status: str = "500 Oops") -> Behaviour:
    return http(body if isinstance(body, bytes) else json.dumps(body).encode(), status)


OF_ALL: dict[str, Behaviour] = {
    "5xx with a list": said([]),
    "5xx with null": said(None),
    "5xx with a text": said("no"),
    "5xx with a type of a number": said({"__type": 5}),
    "5xx in another encoding": said(b"\xff\xfe"),
    "a list": said([], "200 OK"),
    "a text": said("x", "200 OK"),
    "cut short": said(b'{"Items": [{"leaseKey": {"S"', "200 OK"),
    "nested without end": said(b'{"a":' * 20_000, "200 OK"),
    "a length of 1e3": close(b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n{}"),
    "a negative length": http(length=-1),
    "a length of any size": http(length=10**20),
    "an error as a list": said([], "400 Bad Request"),
}
BY_BOTOCORE = ("5xx with a list", "5xx with a type of a number", "a list", "cut short")
"""botocore reads the other ones as well as it can."""
OF_ONE: dict[str, list[object]] = {
    "DescribeStreamSummary": [
        {},
        {"StreamDescriptionSummary": []},
        {"StreamDescriptionSummary": {"StreamARN": "a", "RetentionPeriodHours": []}},
    ],
    "ListShards": [
        {},
        {"Shards": 5},
        {"Shards": [{"ShardId": SHARD}]},
        {"Shards": [{"ShardId": SHARD, "HashKeyRange": {}, "SequenceNumberRange": {}}]},
    ],
    "ListStreams": [{"StreamSummaries": [{}]}, {"StreamSummaries": [5]}],
    "GetShardIterator": [{"ShardIterator": 5}],
    "GetRecords": [{}, {"Records": {}}, {"Records": [{}]}],
    "PutRecords": [{}, {"Records": []}, {"Records": [5]}],
    "ListStreamConsumers": [{"Consumers": [{}]}],
    "Scan": [{}, {"Items": {}}, {"Items": [5]}, {"Items": [{"leaseKey": "k"}]}],
    "GetItem": [{"Item": []}, {"Item": {"leaseKey": 5}}],
    "UpdateItem": [{}, {"Attributes": []}],
    "DescribeTable": [{}, {"Table": {}}, {"Table": []}],
}
CASES = [
    *[(name, kind, "directly") for name in CALLS for kind in OF_ALL],
    *[(name, kind, "proxy") for name in CALLS for kind in BY_BOTOCORE],
    *[(name, index, "directly") for name, found in OF_ONE.items() for index in range(len(found))],
]


@pytest.fixture(autouse=True)
def _fresh_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    dynamodb_client.cache_clear()
    monkeypatch.setattr(caller, "_clients", {})


@pytest.mark.parametrize(("operation", "kind", "way"), CASES)
def test_what_is_not_understood_is_tried_again_and_is_an_error_that_names_the_operation(
    monkeypatch: pytest.MonkeyPatch, operation: str, kind: str | int, way: str
) -> None:
    answer = OF_ALL[kind] if isinstance(kind, str) else said(OF_ONE[operation][kind], "200 OK")
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def longest(_: float, most: float) -> float:
        return most

    with serving() as server:
        server.behaviours.extend([answer] * 20)
        endpoint = server.endpoint
        if way == "proxy":
            monkeypatch.setenv("HTTP_PROXY", endpoint)
            endpoint = "http://kinesis.test"
        retry = Backoff(
            base=1.0, give_up_after=3.0, clock=lambda: now[0], sleep=sleep, uniform=longest
        )
        stream = StreamClient(StreamAddress("s", None, "us-east-1", endpoint), retry)
        table = LeaseTable("t", "us-east-1", endpoint, retry=retry)
        with pytest.raises(SparkinesisError, match=operation) as failed:
            CALLS[operation](stream, table)
        assert 2 <= len(server.requests) <= 8
    assert "retry was used up" in str(failed.value)
    assert len(str(failed.value)) < 1000


def test_a_write_whose_answer_is_not_understood_may_have_been_made() -> None:
    update = requests.release(HELD, "w")
    refused = {
        "__type": "ConditionalCheckFailedException",
        "message": "no",
        "Item": encode_lease(update.after),
    }
    with serving() as server:
        server.behaviours.extend([said({}, "200 OK"), said(refused, "400 Bad Request")])
        table = LeaseTable("t", "us-east-1", server.endpoint, retry=Backoff(base=0.0))
        assert table.write(update) == update.after
    assert len(server.requests) == 2
