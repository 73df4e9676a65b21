"""Pages and events that no service writes: what they say can be used, or they are refused."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.local.wire.push import framed
from sparkinesis.stream.calls.answers.cbor import read_object
from sparkinesis.stream.calls.answers.decoding import decode_cbor_page, decode_event, decode_page
from sparkinesis.stream.calls.answers.guards import UnreadError
from sparkinesis.stream.calls.subscription import EventStreamDecoder
from sparkinesis.stream.page import Page, SubscribeToShardEvent, shard_of
from sparkinesis.stream.position import AfterRecord, parse_position
from sparkinesis.stream.reading.arrow import to_arrow
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.examples import examples

json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(allow_nan=False),
        st.text(max_size=8),
        st.sampled_from([1e300, -1e9, 2**63, "9" * 200, "\u0661", "abc", "", "YQ==", "YQ=", "!"]),
        st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode()),
        st.integers(0, 10**30).map(str),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def fields(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each as it should be, mostly; sometimes missing, and sometimes something else."""
    return st.fixed_dictionaries(
        {},
        optional={name: st.one_of(one, one, one, json_values) for name, one in strategies.items()},
    )


numbers = st.integers(0, 10**56).map(str)
records = fields(
    Data=st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    PartitionKey=st.text(max_size=5),
    SequenceNumber=numbers,
    ApproximateArrivalTimestamp=st.floats(0, 2e9),
)
children = fields(
    ShardId=st.text(max_size=5),
    ParentShards=st.lists(st.text(max_size=5), max_size=2),
    HashKeyRange=fields(StartingHashKey=numbers, EndingHashKey=numbers),
)
answers = fields(
    Records=st.lists(records, max_size=3),
    NextShardIterator=st.text(max_size=5),
    ContinuationSequenceNumber=numbers,
    MillisBehindLatest=st.integers(0, 10**9),
    ChildShards=st.lists(children, max_size=2),
)
RECORD = {
    "ApproximateArrivalTimestamp": 1.79e9,
    "Data": "YQ==",
    "PartitionKey": "k",
    "SequenceNumber": "5",
}


def in_json(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode("utf-8", "replace")


def in_cbor(answer: Any) -> bytes:
    """The same, with data in bytes and times in milliseconds wherever they are such."""
    return cbor2.dumps(_of_cbor("", answer))


def _of_cbor(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _of_cbor(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_of_cbor("", inner) for inner in value]
    if name == "ApproximateArrivalTimestamp" and isinstance(value, int | float):
        ms = value * 1000
        return cbor2.CBORTag(1, round(ms) if abs(ms) < 2**63 else ms)
    if name == "Data" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            return _text(value)
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


ENCODINGS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], Page]]] = {
    "JSON": (in_json, decode_page),
    "CBOR": (in_cbor, decode_cbor_page),
}
REFUSED = (ServiceError, UnreadError)
in_both = pytest.mark.parametrize("encoding", ENCODINGS)


def use(page: Page | SubscribeToShardEvent) -> None:
    """What readers and planners do with a page."""
    batch = to_arrow(page.records, stream="s", shard_id="0")
    batch.validate(full=True)
    assert batch.num_rows >= len(page.records)
    batch.to_pylist()  # times are times
    for record in (*page.records[:1], *page.records[-1:]):
        assert parse_position(record.sequence_number) == AfterRecord(record.sequence_number)
    for child in page.child_shards or ():
        assert shard_of(child).hash_range is not None


@in_both
@settings(max_examples=examples(250), deadline=None)
@given(answer=answers)
@example(answer={"Records": [{**RECORD, "PartitionKey": None}]})
@example(answer={"Records": [{"Data": "YQ==", "SequenceNumber": "5"}]})
@example(answer={"Records": [{**RECORD, "ApproximateArrivalTimestamp": 1e300}]})
@example(answer={"Records": [{**RECORD, "ApproximateArrivalTimestamp": -1}]})
@example(answer={"Records": [{**RECORD, "SequenceNumber": "LATEST"}]})
@example(answer={"Records": [{**RECORD, "SequenceNumber": "9" * 200}]})
@example(answer={"Records": [], "MillisBehindLatest": 10**30})
def test_any_answer_is_a_page_or_an_error(encoding: str, answer: dict[str, Any]) -> None:
    encode, decode = ENCODINGS[encoding]
    try:
        page = decode(encode(answer))
    except REFUSED as error:
        assert len(str(error)) < 500
    else:
        use(page)
    try:
        event = decode_event(in_json(answer))
    except CorruptEventStreamError as error:
        assert len(str(error)) < 500
    else:
        use(event)


@in_both
@settings(deadline=None)
@given(data=st.binary(max_size=60), cuts=st.lists(st.integers(0, 80), max_size=4))
def test_bytes_in_place_of_a_pages_are_an_error(
    encoding: str, data: bytes, cuts: list[int]
) -> None:
    encode, decode = ENCODINGS[encoding]
    page = encode({"Records": [RECORD, {**RECORD, "SequenceNumber": "6"}]})
    with pytest.raises(REFUSED):
        decode(data)
    for at in cuts:
        body = page[:at] + data + page[at:]
        try:
            use(decode(body))
        except REFUSED as error:
            assert len(str(error)) < 500


@settings(deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 80), max_size=4))
def test_bytes_in_place_of_an_errors_are_read_or_refused(data: bytes, cuts: list[int]) -> None:
    whole = cbor2.dumps({"__type": "ResourceNotFoundException", "message": "gone"})
    for body in (data, *(whole[:at] + data + whole[at:] for at in cuts)):
        try:
            json.dumps(read_object(body), default=repr)
        except UnreadError as error:
            assert len(str(error)) < 500


# Events, from the wire on.

parts = st.one_of(
    st.just(INITIAL_RESPONSE),
    st.just(records_event([1, 2], 2)),
    st.builds(framed, st.binary(max_size=30), st.binary(max_size=60)),
    st.binary(max_size=40),
    answers.map(lambda a: framed(b"", json.dumps(a).encode("utf-8", "replace"))),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(parts, max_size=4), st.data())
def test_any_bytes_give_the_same_events_or_error_however_they_are_cut(
    given_parts: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(given_parts)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    chunks = [stream[a:b] for a, b in itertools.pairwise([0, *cuts, len(stream)])]
    whole, in_pieces = decoded([stream]), decoded(chunks)
    # An error may come before the last message in front of it was asked for; never other data.
    assert whole == in_pieces
    for _, payload in whole[0]:
        try:
            use(decode_event(payload))
        except CorruptEventStreamError as error:
            assert len(str(error)) < 500


def decoded(chunks: list[bytes]) -> tuple[list[tuple[Any, bytes]], bool]:
    """The messages, and whether an error ended them."""
    decoder, found = EventStreamDecoder(), []
    try:
        for chunk in chunks:
            for message in decoder.feed(chunk):
                found.append((message.headers, bytes(message.payload)))  # noqa: PERF401
    except CorruptEventStreamError:
        return found, True
    return found, False
