"""`sparkinesis shards` of a stream that was split and merged."""

from __future__ import annotations

import re

from sparkinesis.local import LocalServer
from tests.command import call, failure, objects, place_of
from tests.streams import merge_neighbours, split


def test_the_shards_of_a_stream(server: LocalServer) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=1)
    split(kinesis, "s")
    merge_neighbours(kinesis, "s")
    result = call("shards", "s", *place_of(server))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout, "colours are for terminals"
    lines = [re.sub(" {2,}", "  ", line.rstrip()) for line in result.stdout.splitlines()]
    assert lines == [
        "shard  state  hash keys  share  made by",
        "shardId-000000000000  closed  0 % to 100 %  100 %  -",
        "\u251c\u2500 shardId-000000000001  closed  0 % to 50 %  50 %  split of 0",
        "\u2502  \u2514\u2500 shardId-000000000003  open  0 % to 100 %  100 %  merge of 1 and 2",
        "\u2514\u2500 shardId-000000000002  closed  50 % to 100 %  50 %  split of 0",
        "",
        "4 shards, 1 open",
    ]
    found = objects(call("shards", "s", "--json", *place_of(server)))
    assert [one["state"] for one in found] == ["closed", "closed", "closed", "open"]
    assert found[1]["parents"] == ["shardId-000000000000"]
    assert failure(call("shards", "t", *place_of(server))).startswith("There is no stream 't'")
