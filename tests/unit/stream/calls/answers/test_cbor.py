"""A page in CBOR is the page that the same answer in JSON is, or it is not read.

cbor2 writes the pages here; what is read of broken ones is compared with what cbor2 reads.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.errors import ServiceError
from sparkinesis.stream.calls.answers import cbor, decoding
from sparkinesis.stream.calls.answers.cbor import encode_request, read_object
from sparkinesis.stream.calls.answers.decoding import (
    data_size,
    decode_cbor_page,
    decode_page,
)
from sparkinesis.stream.calls.answers.guards import UnreadError
from sparkinesis.stream.page import MendedPage, Page
from sparkinesis.stream.position import END_OF_TIME_MS
from sparkinesis.stream.reading.arrow import to_arrow
from tests.examples import examples

FIRST = 49_640_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000_000
MS = 1_790_000_000_123


def record(number: int = 0, data: bytes = b"x", key: Any = "k", ms: Any = MS) -> dict[str, Any]:
    """A record of an answer, in the types of CBOR but for its time."""
    return {
        "ApproximateArrivalTimestamp": ms,
        "Data": data,
        "PartitionKey": key,
        "SequenceNumber": str(FIRST + number),
    }


def in_cbor(answer: dict[str, Any], **options: Any) -> bytes:
    """An answer as the service writes it."""
    records = [
        {
            name: cbor2.CBORTag(1, value) if name == "ApproximateArrivalTimestamp" else value
            for name, value in one.items()
        }
        for one in answer["Records"]
    ]
    return cbor2.dumps({**answer, "Records": records}, **options)


def in_json(answer: dict[str, Any]) -> bytes:
    records = [
        {
            name: base64.b64encode(value).decode()
            if isinstance(value, bytes)
            else value / 1000
            if name == "ApproximateArrivalTimestamp"
            else value
            for name, value in one.items()
        }
        for one in answer["Records"]
    ]
    return json.dumps({**answer, "Records": records}).encode()


# The lengths at which the heads of items grow.
sizes = st.sampled_from([0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65_535, 65_536])
datas = st.one_of(
    st.binary(max_size=40),
    sizes.map(lambda size: b"\xff" * size),
    st.just(in_cbor({"Records": [record(), record(1)]})),  # what looks like records
)
keys = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from([0, 22, 23, 24, 25, 255, 256]).map(lambda size: "k" * size),
    st.sampled_from(["é" * 12, "lPartitionKey", "\x00"]),
)
times = st.integers(cbor._LEAST_MS, MS)
ALIKE = ("ApproximateArrivalTimestamp", "Data", "PartitionKey", "SequenceNumber")


@st.composite
def answers(draw: st.DrawFn, *, is_odd: bool) -> dict[str, Any]:
    """Records with members in one order, mostly; odd ones have what the service hardly writes."""
    order = draw(st.permutations([*ALIKE, "EncryptionType"]))
    found = []
    for number in range(draw(st.integers(0, 8))):
        one = {
            **record(number, draw(datas), draw(keys), draw(times)),
            "EncryptionType": draw(st.sampled_from(["KMS", "KMS", "NONE"])),
        }
        if draw(st.integers(0, 5)) == 0:
            order = draw(st.permutations(order))
        gone: set[str] = set()
        if draw(st.booleans()):
            gone.add("EncryptionType")
        if draw(st.integers(0, 5)) == 0:
            gone.add("PartitionKey")
        if is_odd:
            gone |= draw(st.sets(st.sampled_from(ALIKE), max_size=1))
            odd: dict[str, Any] = {
                "PartitionKey": st.none() | st.integers(),
                "ApproximateArrivalTimestamp": st.integers(-(10**13), 10**15),
                "SequenceNumber": st.integers(-1, 2**186).map(str) | st.text(max_size=3),
                "Data": st.just(b"") | st.none(),
            }
            name = draw(st.sampled_from(ALIKE))
            one[name] = draw(odd[name])
        found.append({name: one[name] for name in order if name not in gone})
    answer: dict[str, Any] = {
        "MillisBehindLatest": draw(st.integers(-(10**6), 10**12)),
        "NextShardIterator": draw(st.none() | st.text(max_size=300)),
        "Records": found,
        "New": draw(st.sampled_from([None, True, 1.5, [{"a": [1, "b"]}, {}], {"Records": []}])),
    }
    if draw(st.booleans()):
        keys_ = {"StartingHashKey": "0", "EndingHashKey": "9" * 39}
        child = {"ShardId": "shardId-2", "ParentShards": ["0", "1"], "HashKeyRange": keys_}
        answer["ChildShards"] = [child]
    members = draw(st.permutations(list(answer)))
    return {name: answer[name] for name in members}


@settings(max_examples=examples(300), deadline=None)
@given(answers(is_odd=False), st.booleans())
@example({"Records": [record(n, b"x" * n * 100, "k" * n) for n in range(40)]}, True)
@example({"Records": [record(0, b"x" * (10 << 20), "k" * 256)], "MillisBehindLatest": -1}, False)
@example({"Records": []}, True)
def test_a_page_is_the_same_in_both(answer: dict[str, Any], endless: bool) -> None:
    expected = decode_page(in_json(answer))
    body = bytearray(in_cbor(answer, indefinite_containers=endless))
    found = decode_cbor_page(body)
    assert found == expected
    columns = [to_arrow(page.records, stream="s", shard_id="0") for page in (found, expected)]
    assert columns[0].equals(columns[1])


@settings(max_examples=examples(300), deadline=None)
@given(answers(is_odd=True), st.booleans())
@example({"Records": [record(ms=-1)]}, False)
@example({"Records": [record(ms=0)]}, False)
@example({"Records": [record(ms=cbor._LEAST_MS - 1)]}, False)
@example({"Records": [record(ms=END_OF_TIME_MS)]}, False)
@example({"Records": [record(key=None)]}, False)
@example({"Records": [record(1), record(0), record(0)]}, False)
def test_an_odd_page_is_the_same_in_both_or_is_asked_for_in_json(
    answer: dict[str, Any], endless: bool
) -> None:
    try:
        found = decode_cbor_page(in_cbor(answer, indefinite_containers=endless))
    except UnreadError as error:
        assert len(str(error)) < 300
        return
    assert found == decode_page(in_json(answer))


@pytest.mark.parametrize("size", [0, 100, 1_000, 50_000])
def test_the_size_of_the_records_is_told_from_that_of_the_answer(size: int) -> None:
    body = in_cbor({"Records": [record(n, b"x" * size, "k" * 9) for n in range(200)]})
    estimate = data_size(len(body), decode_cbor_page(body), is_cbor=True)
    assert abs(estimate - 200 * (size + 9)) <= 200 * 4


def test_records_out_of_order_are_mended() -> None:
    page = decode_cbor_page(in_cbor({"Records": [record(2), record(1), record(1)]}))
    assert isinstance(page, MendedPage)
    assert page.mended == 2
    assert [one.sequence_number for one in page.records] == [str(FIRST + 1), str(FIRST + 2)]


def tag_of_time(value: Any, _: bool) -> Any:
    return cbor2.CBORTag(1, value)


def by_cbor2(body: bytes) -> Page:
    """The page that cbor2 reads, with the types that JSON has."""
    answer = cbor2.loads(body, semantic_decoders={1: tag_of_time})
    for one in answer["Records"]:
        at = one.get("ApproximateArrivalTimestamp")
        if at is not None:
            assert at.tag == 1
            assert type(at.value) is int
            one["ApproximateArrivalTimestamp"] = at.value / 1000
    return msgspec.convert(answer, Page, builtin_types=(bytes,))


pages = st.lists(st.builds(record, st.integers(0, 9), st.binary(max_size=5), keys), max_size=3).map(
    lambda found: {"Records": found, "MillisBehindLatest": 3, "New": [None, {"a": b"b"}]}
)
changes = st.lists(
    st.tuples(
        st.integers(0, 600),
        st.binary(max_size=2)
        | st.sampled_from(
            (
                *(b"\xff", b"\xbf", b"\x9f", b"\xa4", b"\xa5", b"\x5f", b"\x7f", b"\xc1", b"\xf6"),
                *(b"\xfb", b"\xf9\x00\x00", b"\x5b" + b"\xff" * 8, b"\x9b\0\0\0\0\0\0\0\1"),
                *(b"dData\x41y", b"lPartitionKeyaz", b"aa\xf5", b"\x81" * 9, b"\x1a\0\0\0\1"),
            )
        ),
        st.integers(0, 3),
    ),
    max_size=3,
)


@settings(max_examples=examples(600), deadline=None)
@given(pages, st.booleans(), changes)
@example({"Records": [record(0), record(1)]}, False, [(-1, b"\x60", 0)])
def test_what_is_read_of_broken_bytes_is_what_they_say(
    answer: dict[str, Any], endless: bool, made: list[tuple[int, bytes, int]]
) -> None:
    body = in_cbor(answer, indefinite_containers=endless)
    for place, inserted, removed in made:
        at = place % (len(body) + 1)
        body = body[:at] + inserted + body[at + removed :]
    try:
        found = decode_cbor_page(body)
    except UnreadError:
        return
    try:
        expected = by_cbor2(body)
    except cbor2.CBORDecodeError as error:
        assert "tag" in str(error)
        return
    assert found == decoding._in_order(expected)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "end of stream"),
        (b"{}", "end of stream"),
        (b"<html>Bad Gateway</html>", "no CBOR"),
        (b"\xa0", "Records"),
        (b"\xf6", "no map"),
        (b"\xa1gRecords\xa0", "Records"),
        (b"\xa1gRecords\x80\x00", "bytes follow"),
        (b"\xa1gRecords\x82\xa0", "end of stream"),
        (b"\xbfgRecords\x80", "end of stream"),
        (b"\xa2gRecords\x80gRecords\x80", "Duplicate"),
        (b"\xa1\x01\x80", "key must be"),
        (b"\xa1aa" + b"\x81" * 100_000, "nesting"),
        (b"\xa1aa" + b"\xa1aa" * 100_000, "nesting"),
        (b"\xa1aa" + b"\xc1" * 100_000 + b"\0", "no CBOR"),
        (b"\xa1aa\x5b" + b"\xff" * 8, "no CBOR"),
        (b"\xa1aa\x7b" + b"\x7f" * 8, "end of stream"),
        (b"\xa1aa\x9b" + b"\xff" * 8, "no CBOR"),
        (b"\xa1gRecords\x99\x27\x11" + b"\xa0" * 10_001, "too many records"),
        # Each record is the first one.
        (b"\xa1gRecords\x9a\0\x01\0\0\xd8\x1c\xa0" + b"\xd8\x1d\0" * 0xFFFF, "too many records"),
        (b"\xa1aa\x9a\0\x4f\xff\xff" + b"\xa0" * 0x4FFFFF, "too much"),
        (b"\xa1aa\x1c", "no CBOR"),
        (b"\xa1aa\xff", "break"),
        (b"\xa1aa\x61\xff", "text string"),
        (b"\xa1gRecords\x81\xa1dData\x5f\x41a\xff", "one piece"),
        (b"\xa1gRecords\x81\xa1dData", "one piece"),
        (b"\xa1gRecords\x81\xa1dData\x5b" + b"\xff" * 8, "cut short"),
        (in_cbor({"Records": [record()], "New": {"Data": b"x"}}), "elsewhere"),
        (in_cbor({"Records": [record(key="dData")]}), "one piece"),
        (in_cbor({"Records": [record(key="dDataAa")]}), "no CBOR"),
        (in_cbor({"Records": [record(data="text")]}), "one piece"),  # type: ignore[arg-type]
        (in_cbor({"Records": [record(key=b"bytes")]}), "str"),
        (in_cbor({"Records": [{**record(), "SequenceNumber": 5}]}), "str"),
        (in_cbor({"Records": [{**record(), "SequenceNumber": "five"}]}), "not a number"),
        (in_cbor({"Records": [record(ms=1790000000)]}), "tag 1"),
        (in_cbor({"Records": [record(ms=2**32)]}), "tag 1"),
        (in_cbor({"Records": [record(ms=2**63)]}), "tag 1"),
        (in_cbor({"Records": [record(ms=1790000000.5)]}), "tag 1"),
        (cbor2.dumps({"Records": [record(ms=1790000000)]}), "tag 1"),
        (in_cbor({"Records": [record(ms=b"\0" * 7)]}), "tag 1"),
        (in_cbor({"Records": [], "MillisBehindLatest": 2**63}), "MillisBehindLatest"),
        (in_cbor({"Records": [], "MillisBehindLatest": "5"}), "MillisBehindLatest"),
        (in_cbor({"Records": [], "NextShardIterator": b"a"}), "NextShardIterator"),
    ],
)
def test_what_is_no_page_is_not_read(body: bytes, says: str) -> None:
    with pytest.raises(UnreadError, match=says) as error:
        decode_cbor_page(bytearray(body))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("cut", range(1, 400, 7))
def test_a_page_that_is_cut_short_is_not_read(cut: int) -> None:
    body = in_cbor({"Records": [record(n) for n in range(9)], "MillisBehindLatest": 9})
    with pytest.raises(UnreadError):
        decode_cbor_page(body[:-cut])


def test_what_is_not_read_shows_no_user_data() -> None:
    body = in_cbor({"Records": [{**record(0, b"secret", "secret"), "SequenceNumber": 5}]})
    with pytest.raises(UnreadError) as error:
        decode_cbor_page(body)
    assert "secret" not in str(error.value)


def test_json_is_never_taken_for_cbor() -> None:
    for body in (b'{"__type":"Oops"}', b" {}", b"[]", b"null", b"<html/>", b"", b"\xef\xbb\xbf{}"):
        with pytest.raises(UnreadError):
            read_object(body)
        with pytest.raises(ServiceError):
            decode_page(b"\xa0")


@given(
    st.dictionaries(
        st.text(max_size=30), st.text(max_size=300) | st.integers(0, 2**64 - 1), max_size=30
    )
)
@example({"ShardIterator": "A" * 70_000, "Limit": 10_000})
def test_a_request_says_what_it_was_given(request: dict[str, str | int]) -> None:
    body = encode_request(request)
    assert cbor2.loads(body) == request
    assert read_object(body) == request


def test_a_request_is_written_as_the_sdk_for_java_writes_it() -> None:
    """Of version 2.57.8, as the local Kinesis received it."""
    iterator = "QUFB" * 24
    text = iterator.encode()
    assert encode_request({"ShardIterator": iterator}) == b"\xbfmShardIteratorx`" + text + b"\xff"
