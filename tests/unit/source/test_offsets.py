"""Offsets: what Spark's checkpoint holds, and what a batch between two of them reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import OffsetError
from sparkinesis.source.offsets import (
    ANY_SHARD,
    KnownOffsets,
    Offset,
    Positions,
    from_json,
    ranges,
    to_json,
)
from sparkinesis.stream.position import (
    LATEST,
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    ShardRange,
)


def test_equal_offsets_are_equal_as_text() -> None:
    one = to_json({"t": {}, "s": {"b": TRIM_HORIZON, "a": AfterRecord("7", 9)}})
    other = to_json({"s": {"a": AfterRecord("7", 9), "b": TRIM_HORIZON}, "t": {}})
    text = '{"s": {"a": "7@9", "b": "TRIM_HORIZON"}, "t": {}}'
    assert json.dumps(one) == json.dumps(other) == text
    assert from_json(["s", "t"], one) == {
        "s": {"a": AfterRecord("7", 9), "b": TRIM_HORIZON},
        "t": {},
    }


def test_a_checkpoint_of_another_stream_is_refused_by_name() -> None:
    with pytest.raises(OffsetError, match=r"belongs to stream 'b', 'c', 'orders', but .* 'fl"):
        from_json(["flights"], {"orders": {}, "c": {}, "b": {}})


def test_a_stream_that_the_query_no_longer_reads_is_dropped_only_if_that_is_wanted() -> None:
    offset = {"a": {"x": "7"}, "b": {"x": "8"}}
    refused = "holds stream 'b', which the query does not read: it reads 'a', 'c'.*removedStreams"
    with pytest.raises(OffsetError, match=refused):
        from_json(["c", "a"], offset)
    with pytest.raises(OffsetError, match=refused):
        KnownOffsets(["c", "a"]).read(offset)
    kept = from_json(["c", "a"], offset, drops_removed=True)
    assert kept == {"a": {"x": AfterRecord("7")}, "b": {"x": AfterRecord("8")}}
    with pytest.raises(OffsetError, match="belongs to stream 'a', 'b'"):
        from_json(["c"], offset, drops_removed=True)


def test_a_stream_that_was_added_may_be_missing() -> None:
    assert from_json(["a", "b"], {"a": {"x": "7"}}) == {"a": {"x": AfterRecord("7")}}
    assert from_json(["a", "b"], {}) == {}


@pytest.mark.parametrize("offset", [{"a": {}, "b": 7}, {"a": "7"}, ["a"]])
def test_what_this_source_has_not_written_is_refused(offset: Any) -> None:
    with pytest.raises(OffsetError, match="was not written by the kinesis source"):
        from_json(["a", "b"], offset)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(json_values | st.dictionaries(st.just("s"), json_values))
def test_no_offset_json_does_harm(offset: Any) -> None:
    try:
        positions = from_json(["s"], offset)
    except OffsetError as error:
        assert "checkpoint" in str(error)
    else:
        assert from_json(["s"], to_json(positions)) == positions


def test_an_offset_that_comes_back_from_spark_is_the_object_that_was_written() -> None:
    known = KnownOffsets(["s"])
    first: Offset = {"s": {"a": AfterRecord("7", 9)}}
    second: Offset = {"s": {"a": AfterRecord("8", 9)}}
    texts = [json.loads(json.dumps(known.write(offset))) for offset in (first, second)]
    assert texts == [to_json(first), to_json(second)]
    assert known.read(texts[0]) is first
    assert known.read(texts[1]) is second
    assert known.write(second) == texts[1]
    assert known.read(texts[0]) is first, "what is written again does not supersede the other end"


def test_an_offset_that_spark_repeats_is_read_once_and_an_older_one_again() -> None:
    known = KnownOffsets(["s"])
    texts = [{"s": {"a": str(number)}} for number in range(3)]
    oldest = known.read(texts[0])
    assert known.read({"s": {"a": "0"}}) is oldest
    others = [known.read(each) for each in texts[1:]]
    assert [known.read(each) for each in texts[1:]] == others
    assert known.read(texts[0]) == oldest == {"s": {"a": AfterRecord("0")}}
    assert known.read(texts[0]) is not oldest, "only the two ends of a batch are kept"


def test_an_offset_like_a_known_one_is_read_by_its_own_text() -> None:
    known = KnownOffsets(["s"])
    known.read({"s": {"a": "7", "b": "8"}})
    assert known.read({"s": {"a": "7"}}) == {"s": {"a": AfterRecord("7")}}
    assert known.read({"s": {"a": "7", "b": "9"}})["s"]["b"] == AfterRecord("9")
    with pytest.raises(OffsetError, match="shard a of stream 's' is not valid"):
        known.read({"s": {"a": "x", "b": "8"}})
    with pytest.raises(OffsetError, match="belongs to stream 't'"):
        known.read({"t": {"a": "7"}})
    kept = KnownOffsets(["s"], drops_removed=True)
    assert kept.read({"s": {}, "t": {"a": "7"}}) == {"s": {}, "t": {"a": AfterRecord("7")}}


def test_a_batch_reads_what_lies_between_its_two_offsets() -> None:
    start: Positions = {
        "quiet": AfterRecord("7", 5),
        "goes-on": AfterRecord("7", 5, None, 6, "3"),
        "ends": AtTimestamp(5),
        "ended": SHARD_END,
        "empty": AtTimestamp(5),
        "inside": AfterRecord("7", sub_sequence_number=2),
    }
    end: Positions = {
        "quiet": AfterRecord("7", 8, None, 6, "3"),
        "new": AfterRecord("11", first="10"),
        "goes-on": AfterRecord("9", 8, NONE_OF_IT, 7, "8"),
        "ends": SHARD_END,
        "ended": SHARD_END,
        "empty": AtTimestamp(8),
        "inside": AfterRecord("7"),
    }
    assert ranges(start, end) == [
        ShardRange("ends", AtTimestamp(5), SHARD_END),
        ShardRange(
            "goes-on",
            AfterRecord("7", 5, None, 6),
            AfterRecord("9", 8, NONE_OF_IT, 7),
            first="8",
        ),
        ShardRange("inside", AfterRecord("7", sub_sequence_number=2), AfterRecord("7")),
        # Unlisted, so a child of a shard that has ended.
        ShardRange("new", TRIM_HORIZON, AfterRecord("11"), first="10"),
    ]


def test_only_the_shards_of_the_initial_offset_begin_where_the_user_said() -> None:
    """An instant that is older than the oldest record is then no loss."""
    stored = {"s": {"*": "AT_TIMESTAMP:5", "listed": "AT_TIMESTAMP:6"}}
    start = from_json(["s"], stored)["s"]
    end: Positions = {"listed": SHARD_END, "a": SHARD_END, "b": AfterRecord("9")}
    assert ranges(start, end) == [
        ShardRange("a", AtTimestamp(5), SHARD_END, is_initial=True),
        ShardRange("b", AtTimestamp(5), AfterRecord("9"), is_initial=True),
        ShardRange("listed", AtTimestamp(6), SHARD_END),
    ]


@pytest.mark.parametrize(
    "end", [AfterRecord("9", sub_sequence_number=3), SHARD_END, AtTimestamp(5), TRIM_HORIZON]
)
def test_making_the_checkpoints_of_an_application_durable_reads_nothing(end: Position) -> None:
    assert ranges({ANY_SHARD: FromApplication("app")}, {"a": end}) == []


def test_making_latest_durable_reads_nothing() -> None:
    assert ranges({ANY_SHARD: LATEST}, {"a": AtTimestamp(5), "b": AtTimestamp(5)}) == []
    # As of a stream that was added, when another is added before its first batch is planned.
    assert ranges({ANY_SHARD: LATEST}, {ANY_SHARD: LATEST}) == []


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (LATEST, AfterRecord("9")),
        (LATEST, SHARD_END),
        (LATEST, TRIM_HORIZON),
        (FromApplication("app"), AfterRecord("9")),
        (FromApplication("app"), AfterRecord("9", sub_sequence_number=NONE_OF_IT)),
    ],
)
def test_a_first_batch_with_rows_is_not_begun_elsewhere(start: Position, end: Position) -> None:
    with pytest.raises(OffsetError, match=r"initialPosition was changed.* ends in shard a at"):
        ranges({ANY_SHARD: start}, {"a": end})
