"""The positions that options take: words, instants, maps of shards, and the JSON of Databricks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.errors import OptionError
from sparkinesis.source.offsets import ANY_SHARD, to_json
from sparkinesis.source.options.checked_options import BatchReadOptions, batch_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from tests.examples import examples

MS = 1593080625000
"""2020-06-25T10:23:45Z."""


def at(text: str, pattern: str | None, option: str = "initialPosition") -> int:
    given = {"at_timestamp": text} | ({} if pattern is None else {"format": pattern})
    found = Options({"streamName": "s", option: json.dumps(given)})[option]
    assert isinstance(found, AtTimestamp)
    return found.ms


@pytest.mark.parametrize(
    ("text", "pattern", "hours_east"),
    [
        # The example of Databricks' documentation, and one of a notebook.
        ("06/25/2020 10:23:45 PDT", "MM/dd/yyyy HH:mm:ss ZZZ", -7),
        ("2020/06/25 10:23:45 GMT", "yyyy/MM/dd HH:mm:ss ZZZ", 0),
        ("2020-06-25T10:23:45Z", "yyyy-MM-dd'T'HH:mm:ss'Z'", 0),
        ("2020-06-25T10:23:45+02:00", "yyyy-MM-dd'T'HH:mm:ssXXX", 2),
        ("2020-06-25 10:23:45 -0530", "uuuu-MM-dd HH:mm:ss Z", -5.5),
        ("2020-06-25 10:23:45 GMT+2", "yyyy-MM-dd HH:mm:ss z", 2),
        ("25 June 2020 10:23:45 AM UTC", "d MMMM yyyy h:mm:ss a z", 0),
        ("Jun 25, 2020 10:23:45 EST", "MMM d, yyyy HH:mm:ss z", -5),
        ("2020-06-25T10:23:45+01:00", None, 1),
    ],
)
def test_an_instant_is_read_by_its_format(
    text: str, pattern: str | None, hours_east: float
) -> None:
    assert at(text, pattern) == MS - round(hours_east * 3_600_000)


def test_fractions_of_a_second_and_the_afternoon_are_read() -> None:
    assert at("2020-06-25 10:23:45.25 UTC", "yyyy-MM-dd HH:mm:ss.SSS z") == MS + 250
    assert at("2020-06-25 12:23:45 PM UTC", "yyyy-MM-dd hh:mm:ss a z") == MS + 2 * 3_600_000
    assert at("2020-06-25 12:23:45 AM UTC", "yyyy-MM-dd hh:mm:ss a z") == MS - 10 * 3_600_000


def test_a_named_time_zone_has_its_summer_time() -> None:
    pattern = "yyyy-MM-dd HH:mm:ss VV"
    try:
        found = at("2020-06-25 10:23:45 Europe/Berlin", pattern)
    except OptionError as error:  # a machine without a database of time zones
        assert "time zone 'Europe/Berlin' is not known" in str(error)
    else:
        assert found == MS - 2 * 3_600_000


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_batch_read_takes_it_too(option: str) -> None:
    assert at("2020-06-25 10:23:45 UTC", "yyyy-MM-dd HH:mm:ss z", option) == MS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at_timestamp": "2020-06-25", "format": "MM/dd/yyyy"}, "does not have the format"),
        ({"at_timestamp": "06/25/2020", "format": "MM/dd/yyyy"}, "without a time zone"),
        ({"at_timestamp": "06/31/2020 Z", "format": "MM/dd/yyyy X"}, "range"),
        ({"at_timestamp": "06/25/2020 XYZ", "format": "MM/dd/yyyy z"}, "zone 'XYZ' is not known"),
        ({"at_timestamp": "06/25/2020 ../x", "format": "MM/dd/yyyy z"}, "does not have the format"),
        ({"at_timestamp": "Thu 25", "format": "EEE dd"}, "'EEE' in its format is not supported"),
        ({"at_timestamp": "10:23", "format": "HH:mm"}, "has no day"),
        ({"at_timestamp": "25 25", "format": "dd dd"}, "names the day twice"),
        ({"at_timestamp": "2020", "format": "yyyy 'at"}, "has an open quote"),
        ({"at_timestamp": "yesterday"}, "which is not a position"),
        ({"at_timestamp": 1593080625000}, "must be strings"),
        ({"at_timestamp": "x", "zone": "UTC"}, "not 'zone'"),
    ],
)
def test_any_other_says_how_to_write_the_instant(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options({"initialPosition": json.dumps(given)})["initialPosition"]
    text = str(caught.value)
    assert said in text
    assert text.startswith("The option initialPosition is ")
    assert "Write the instant in ISO 8601 instead, without JSON: 2026-11-21T08:30:00-07:00." in text
    assert "\n" not in text


def test_what_is_not_json_is_told() -> None:
    with pytest.raises(OptionError, match=r"this is not valid JSON: .* Write the instant in ISO"):
        Options({"initialPosition": '{"at_timestamp": 06/25/2020}'})["initialPosition"]


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


@settings(max_examples=examples(100))
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
