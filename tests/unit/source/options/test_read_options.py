"""The options of a batch read: positions, maps of shards, maps of streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import OptionError
from sparkinesis.source.offsets import ANY_SHARD, to_json
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.options.read_options import BatchReadOptions, batch_read_options
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)


def parse(start: Any = None, end: Any = None, streams: str = "s") -> BatchReadOptions:
    options = {"streamName": streams}
    for name, value in (("startingPosition", start), ("endingPosition", end)):
        if value is not None:
            options[name] = value if isinstance(value, str) else json.dumps(value)
    return batch_read_options(Options(options))


def test_defaults_are_everything_that_is_there() -> None:
    options = parse(streams="s,t")
    assert options.start == {"s": {ANY_SHARD: TRIM_HORIZON}, "t": {ANY_SHARD: TRIM_HORIZON}}
    assert options.end == {"s": {ANY_SHARD: LATEST}, "t": {ANY_SHARD: LATEST}}
    assert not options.filter_pushdown


def test_a_boundary_is_a_name_an_instant_or_a_map() -> None:
    options = parse("LATEST", "1970-01-01T00:00:01Z")
    assert options.start == {"s": {ANY_SHARD: LATEST}}
    assert options.end == {"s": {ANY_SHARD: AtTimestamp(1000)}}
    options = parse({"a": "7", "b": "trim_horizon"}, {"s": {"a": "9@5", "b": "SHARD_END"}})
    assert options.start == {"s": {"a": AfterRecord("7"), "b": TRIM_HORIZON}}
    assert options.end == {"s": {"a": AfterRecord("9", 5), "b": SHARD_END}}
    assert parse("{}").start == {}


positions: st.SearchStrategy[Position] = st.one_of(
    st.sampled_from([TRIM_HORIZON, LATEST, SHARD_END]),
    st.builds(AtTimestamp, st.integers(0, 10**14)),
    st.builds(
        AfterRecord, st.from_regex(r"[0-9]{1,56}", fullmatch=True), st.none() | st.integers(0, 9)
    ),
)


@given(
    st.dictionaries(
        st.sampled_from("st"), st.dictionaries(st.text(), positions, min_size=1), min_size=1
    )
)
def test_every_offset_of_a_streaming_query_is_a_boundary(offset: Any) -> None:
    options = parse(to_json(offset), to_json(offset), "s,t")
    assert options.start == options.end == offset


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("yesterday", "takes latest, trim_horizon or an instant"),
        ("yesterday", 'It also takes a JSON map of shard to sequence number, such as {"shardId'),
        ("2026-11-21T08:30:00", "without a time zone"),
        ('{"a": "7"', "starts with '{' but is not valid JSON"),
        ('{"a": 7}', "Put quotes around the sequence number"),
        ('{"a": null}', "a position for shard a that cannot be parsed"),
        ('{"a": "nonsense"}', "'nonsense' is not a position"),
        ('{"a": "7", "s": {}}', "some keys to positions and others to maps"),
        ('{"q": {"a": "7"}}', "names stream 'q', which the query does not read. It reads 's'."),
    ],
)
@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_mistake_is_explained_in_one_paragraph(option: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch_read_options(Options({"streamName": "s", option: value}))
    text = str(caught.value)
    assert said in text
    assert f"The option {option} " in text
    assert "\n" not in text


def test_shards_alone_do_not_say_of_which_stream() -> None:
    with pytest.raises(
        OptionError, match=r'Name the stream of the shards, for example \{"s": \{"a": '
    ):
        parse({"a": "7"}, streams="s,t")
