"""Offsets edited by hand, or of another version: read as what they say, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.errors import DataLossError, OffsetError, SparkinesisError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.offsets import from_json, to_json
from sparkinesis.stream.position import AtTimestamp
from tests.engine import Query, query_of
from tests.streams import put, shard_ids

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"

BAD: dict[str, Any] = {
    "a number": 7,
    "not a number": float("nan"),
    "nothing": None,
    "a list": ["5"],
    "a map": {"sequenceNumber": "5"},
    "a million digits": "9" * 1_000_000,
    "other digits": "\u0661",
    "a sign": "-5",
    "spaces": " 5",
    "two times": "5@1@2",
    "half a time": "5@",
    "an instant of no year": "AT_TIMESTAMP:999999999999999",
    "a negative instant": "AT_TIMESTAMP:-1",
    "a newer form": "v9:5",
    "lower case": "trim_horizon",
    "an end of line": "5\n",
    "half a pair": "\ud800",
}


@pytest.mark.parametrize("name", BAD)
def test_a_position_that_is_none_is_named_and_says_what_to_do(name: str) -> None:
    with pytest.raises(
        OffsetError, match=rf"shard {SECOND} of stream 'flights' is not valid.*checkpoint location"
    ) as error:
        from_json(["flights"], {"flights": {FIRST: "5", SECOND: BAD[name]}})
    assert len(str(error.value)) < 600
    str(error.value).encode()


texts = st.one_of(
    st.sampled_from(["TRIM_HORIZON", "LATEST", "SHARD_END", "APPLICATION:app"]),
    st.from_regex(r"AT_TIMESTAMP:[0-9]{1,16}", fullmatch=True),
    st.from_regex(r"[0-9]{1,60}(:[0-9]{1,19})?(@[0-9]{1,16})?", fullmatch=True),
    st.text(max_size=12),
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.dictionaries(st.text(max_size=8), texts)))
def test_what_is_read_is_written_again_as_it_was(offset: dict[str, dict[str, str]]) -> None:
    try:
        positions = from_json(list(offset), offset)
    except OffsetError as error:
        str(error).encode()
        return
    again = to_json(positions)
    assert from_json(list(offset), json.loads(json.dumps(again))) == positions
    for shards in positions.values():
        for position in shards.values():
            if isinstance(position, AtTimestamp):
                assert position.instant.year <= 9999


# On a real stream.


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=ManualClock(1_790_000_000_000)) as running:
        yield running


@pytest.fixture
def query(server: LocalServer) -> Iterator[Query]:
    kinesis = server.client("kinesis")
    if not kinesis.list_streams()["StreamNames"]:
        kinesis.create_stream(StreamName="s", ShardCount=2)
        put(kinesis, "s", [b"%d" % n for n in range(40)])
    made = query_of(server)
    yield made
    made.reader.stop()


def test_a_shard_that_was_removed_by_hand_is_read_again_from_its_start(query: Query) -> None:
    """What it does not list is new to it: at least once, and never left out."""
    assert len(query.rest()) == 40
    other = Query(**query._options)
    of_first = sum(row["shardId"] == FIRST for batch in other.drain() for row in batch.rows)
    other.reader.stop()
    del query.checkpoint["s"][FIRST]
    query.restart()
    assert len(query.rest()) == of_first > 0


EDITS: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "of another shard": lambda s: {**s, FIRST: s[SECOND]},
    "of no record": lambda s: {**s, FIRST: "123@1"},
    "far in the future": lambda s: {**s, FIRST: "9" * 56},
    "of a shard that is none": lambda s: {**s, "shardId-000000000099": "5"},
    "of a shard without name": lambda s: {**s, "": "5"},
    "at the end of a shard that is open": lambda s: {**s, FIRST: "SHARD_END"},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_offset_is_an_error_that_names_the_shard_or_loses_nothing_else(
    query: Query, server: LocalServer, edit: str
) -> None:
    query.rest()
    query.checkpoint["s"] = EDITS[edit](query.checkpoint["s"])
    query.restart()
    put(server.client("kinesis"), "s", [b"%d" % n for n in range(40)])
    try:
        rows = [row for batch in query.drain() for row in batch.rows]
    except SparkinesisError as error:
        assert isinstance(error, DataLossError), error
        assert FIRST in str(error) or "shardId-000000000099" in str(error) or "shard " in str(error)
        assert "failOnDataLoss" in str(error)
    else:
        # What the edit says is done of one shard is; the other one is read as ever.
        assert len({row["data"] for row in rows if row["shardId"] == SECOND}) > 5
        assert len(shard_ids(server.client("kinesis"), "s")) == 2
