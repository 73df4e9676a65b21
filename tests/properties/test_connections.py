"""A Python process of Spark keeps its connections from task to task."""

from __future__ import annotations

from typing import Any

from sparkinesis.local import LocalServer
from tests.engine import Query
from tests.relay import relaying
from tests.sink import write
from tests.streams import put


def test_later_batches_open_no_connection(server: LocalServer, kinesis: Any) -> None:
    with relaying(server.endpoint_url) as relayed:
        query = Query(
            streamName="s",
            endpoint=relayed.endpoint,
            region="us-east-1",
            initialPosition="trim_horizon",
        )
        opened = []
        for number in range(4):
            put(kinesis, "s", [b"%d-%d" % (number, each) for each in range(20)])
            while query.next_batch():
                opened.append(relayed.opened)
    assert query.rows_read == 80
    assert len(opened) >= 4
    shards = 2
    assert opened[-1] <= shards, "one for each shard that is looked at or read at the same time"


def test_later_writes_open_no_connection(server: LocalServer, kinesis: Any) -> None:
    with relaying(server.endpoint_url) as relayed:
        opened = []
        for _ in range(4):
            write(relayed.endpoint, [[(f"key-{each}", None, b"data") for each in range(20)]])
            opened.append(relayed.opened)
    assert opened[0] >= 1
    assert opened[-1] == opened[0]
