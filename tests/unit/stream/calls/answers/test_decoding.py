"""A page is decoded as botocore would, and what is no page is an error that says so.

The data of large records is decoded apart from the rest, with the result of decoding the whole.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.stream.calls.answers import decoding
from sparkinesis.stream.calls.answers.decoding import (
    decode_event,
    decode_page,
    take_out,
    warn_if_mended,
)
from sparkinesis.stream.page import ChildShard, MendedPage, Page, Record, SubscribeToShardEvent
from tests.examples import examples

RECORD = Record(
    data=b"x", partition_key="k", sequence_number="1", approximate_arrival_timestamp=1.5
)


def wire(record: Record) -> dict[str, Any]:
    """A record as the service writes it: without what it has not."""
    members = {
        "SequenceNumber": record.sequence_number,
        "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        "Data": base64.b64encode(record.data).decode(),
        "PartitionKey": record.partition_key,
    }
    return {name: value for name, value in members.items() if value is not None}


def number_of(record: Record) -> int:
    return int(record.sequence_number)


def in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=number_of)


records = st.builds(
    Record,
    data=st.binary(max_size=50),
    partition_key=st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    sequence_number=st.integers(0, 2**186).map(str),
    approximate_arrival_timestamp=st.none() | st.integers(0, 10**13).map(lambda ms: ms / 1000),
)


@settings(deadline=None)
@given(st.lists(records, unique_by=number_of).map(in_order), st.booleans())
def test_records_come_out_as_they_were_written(expected: list[Record], ascii_only: bool) -> None:
    answer = {
        "Records": [wire(record) for record in expected],
        "NextShardIterator": "AAAA==",
        "MillisBehindLatest": 12,
    }
    body = json.dumps(answer, ensure_ascii=ascii_only).encode()
    assert decode_page(body) == Page(expected, "AAAA==", 12, None)
    assert decode_event(body).records == expected


def test_the_service_writes_seconds_with_an_exponent() -> None:
    body = (
        b'{"Records":[{"ApproximateArrivalTimestamp":1.763705123456E9,"Data":"",'
        b'"PartitionKey":"k","SequenceNumber":"1"}]}'
    )
    assert decode_page(body).records[0].approximate_arrival_timestamp == 1763705123.456


def test_unknown_fields_are_skipped() -> None:
    record = {**wire(RECORD), "EncryptionType": "KMS", "New": [{"a": None}]}
    page = decode_page(json.dumps({"New": {"b": 1}, "Records": [record]}).encode())
    assert page == Page([RECORD])


def test_the_last_page_of_a_closed_shard_names_its_children() -> None:
    child = {
        "ShardId": "shardId-000000000002",
        "ParentShards": ["shardId-000000000000", "shardId-000000000001"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
    }
    page = decode_page(json.dumps({"Records": [], "ChildShards": [child]}).encode())
    assert page.next_shard_iterator is None
    assert page.child_shards is not None
    (decoded,) = page.child_shards
    assert isinstance(decoded, ChildShard)
    assert decoded.shard_id == "shardId-000000000002"
    assert decoded.parent_shards == ["shardId-000000000000", "shardId-000000000001"]
    assert int(decoded.hash_key_range.starting_hash_key) == 0
    assert int(decoded.hash_key_range.ending_hash_key) == 2**128 - 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "0 bytes"),
        (b"{}", "Records"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway"),
        (b'{"Records":[{"Data":"!","PartitionKey":"k","SequenceNumber":"1"}]}', "Data"),
        (b'{"Records":[{"Data":"","PartitionKey":"k"}]}', "SequenceNumber"),
        (b'{"Records":[{"Data":"","PartitionKey":"\xff","SequenceNumber":"1"}]}', "utf-8"),
        (b'{"Records":[{"Data":"","PartitionKey":"\\ud800","SequenceNumber":"1"}]}', "surrogate"),
        (b'{"a":' + b"[" * 100_000, "recursion|truncated"),  # Python 3.14 nests deeper
    ],
)
def test_what_is_no_page_is_an_error_that_says_why(body: bytes, says: str) -> None:
    with pytest.raises(ServiceError, match=says):
        decode_page(body)


def test_the_error_shows_no_user_data() -> None:
    body = b'{"Records":[{"Data":"c2VjcmV0","PartitionKey":"secret","SequenceNumber":1}]}'
    with pytest.raises(ServiceError) as error:
        decode_page(body)
    assert "c2VjcmV0" not in str(error.value)
    assert "secret" not in str(error.value)


def page_of(*numbers: str) -> bytes:
    records = [{**wire(RECORD), "SequenceNumber": number} for number in numbers]
    return json.dumps({"Records": records}).encode()


def numbers_of(body: bytes) -> tuple[list[str], int]:
    """The sequence numbers of a page, and how many records were mended; of an event the same."""
    page, event = decode_page(body), decode_event(body)
    assert page.records == event.records
    numbers = [record.sequence_number for record in page.records]
    assert getattr(page, "mended", 0) == getattr(event, "mended", 0)
    return numbers, getattr(page, "mended", 0)


MANY = [str(number) for number in range(20_000, 21_500)]
"""More than are looked at one by one."""


@pytest.mark.parametrize(
    ("came", "ordered", "mended"),
    [
        (["7", "8", "9"], ["7", "8", "9"], 0),
        (["9", "10", "100"], ["9", "10", "100"], 0),
        (["8", "7", "9"], ["7", "8", "9"], 1),
        (["7", "7", "8"], ["7", "8"], 1),
        (["7", "8", "9", "7", "8", "9"], ["7", "8", "9"], 3),
        (["12", "120", "13"], ["12", "13", "120"], 1),
        (["20", "3", "400"], ["3", "20", "400"], 1),
        (["9", "7", "8"], ["7", "8", "9"], 2),
        (["9" * 127, "9" * 128], ["9" * 127, "9" * 128], 0),
        (["9", "10", "8"], ["8", "9", "10"], 1),
        (MANY, MANY, 0),
        ([*MANY[700:], *MANY[:700]], MANY, 700),
        ([*MANY, "3"], ["3", *MANY], 1),
        ([*MANY[:1496], MANY[3], MANY[1497]], [*MANY[:1496], MANY[1497]], 1),
        ([*MANY[:999], MANY[997]], MANY[:999], 1),
    ],
    ids=[
        "in order",
        "longer and longer",
        "two changed places",
        "one twice",
        "all twice",
        "shorter behind longer",
        "in the order of texts",
        "two behind a later one",
        "as long as may be",
        "all moved",
        "many",
        "blocks of many",
        "a short one behind many",
        "the last one of many that is looked at",
        "one of a thousand",
    ],
)
def test_records_are_put_in_order_each_once(
    came: list[str], ordered: list[str], mended: int
) -> None:
    assert numbers_of(page_of(*came)) == (ordered, mended)


@pytest.mark.parametrize("count", range(1497, 1501))
def test_the_numbers_of_a_page_in_order_are_compared_as_texts(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """To compute each takes five times as long."""
    monkeypatch.delattr(decoding, "sequence_order")
    assert numbers_of(page_of(*MANY[:count])) == (MANY[:count], 0)


@pytest.mark.parametrize("wrong", ["", "x", "-5", "1e5", "\u0662", "2000x", "9" * 129])
@pytest.mark.parametrize("many", [["2", "5"], MANY], ids=["few", "many"])
def test_a_number_that_is_none_makes_the_page_invalid(wrong: str, many: list[str]) -> None:
    """In a large page, where it is looked at."""
    middle = len(many) // 8 * 4 or 1
    body = page_of(*many[:middle], wrong, *many[middle:])
    with pytest.raises(ServiceError, match="SequenceNumber is not a number"):
        decode_page(body)
    with pytest.raises(ServiceError, match="SequenceNumber is not a number"):
        decode_event(body)


@pytest.mark.parametrize("more", [[], MANY[1:-1]], ids=["few", "many"])
@pytest.mark.parametrize(
    ("first", "last"), [("-5555", MANY[-1]), (MANY[0], "2999x"), (MANY[0], "-"), ("2", "x")]
)
def test_the_numbers_at_both_ends_are_looked_at(first: str, last: str, more: list[str]) -> None:
    """Readers resume there."""
    with pytest.raises(ServiceError, match="of records: SequenceNumber is not a number"):
        decode_page(page_of(first, *more, last))


def test_what_else_a_page_or_an_event_says_is_kept_when_it_is_put_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the user is told."""
    records = [{**wire(RECORD), "SequenceNumber": number} for number in ("8", "7", "7")]
    child = {
        "ShardId": "shardId-000000000002",
        "ParentShards": ["shardId-000000000000"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }
    said = {"Records": records, "MillisBehindLatest": 12, "ChildShards": [child]}
    page = decode_page(json.dumps({**said, "NextShardIterator": "AAAA=="}).encode())
    event = decode_event(json.dumps({**said, "ContinuationSequenceNumber": "9"}).encode())
    assert (page.next_shard_iterator, event.continuation_sequence_number) == ("AAAA==", "9")
    for fetched in (page, event):
        assert fetched.millis_behind_latest == 12
        assert [one.shard_id for one in fetched.child_shards or ()] == ["shardId-000000000002"]
        caplog.clear()
        warn_if_mended(fetched, "shardId-0", "stream 's'")
        assert "shard shardId-0 of stream 's'" in caplog.text
        assert "from sequence number 7 on: 2 of them" in caplog.text
    caplog.clear()
    warn_if_mended(decode_page(page_of("7", "8")), "shardId-0", "stream 's'")
    warn_if_mended(decode_event(page_of("7", "8")), "shardId-0", "stream 's'")
    assert caplog.text == ""


@pytest.mark.parametrize("number", ["", "-5", "x", "9" * 129])
def test_an_event_that_goes_on_nowhere_is_invalid(number: str) -> None:
    """The next subscription would begin there."""
    event = {"Records": [], "ContinuationSequenceNumber": number}
    with pytest.raises(CorruptEventStreamError, match="ContinuationSequenceNumber is not a number"):
        decode_event(json.dumps(event).encode())


WHOLE = msgspec.json.Decoder(Page)


def record(data: bytes, **others: Any) -> dict[str, Any]:
    return {
        "ApproximateArrivalTimestamp": 1.5,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "k",
        "SequenceNumber": "5",
        **others,
    }


def compact(value: Any) -> bytes:
    """JSON as services write it."""
    return json.dumps(value, separators=(",", ":")).encode()


def page_of_sizes(sizes: list[int]) -> bytes:
    return records_of([bytes([n % 256]) * size for n, size in enumerate(sizes)])


def records_of(datas: list[bytes], **others: Any) -> bytes:
    """A page in order."""
    records = [record(data, SequenceNumber=str(n)) for n, data in enumerate(datas, 20_000)]
    return compact({"Records": records, **others})


LARGE = page_of_sizes([1000, 50_000, 0, 3000, 1])


def test_large_data_is_taken_out_and_put_back() -> None:
    taken = take_out(LARGE)
    assert taken is not None
    rest, data = taken
    assert [len(each) for each in data] == [1000, 50_000, 0, 3000, 1]
    assert len(rest) < 1000  # the decoder of the rest sees no data
    assert decode_page(LARGE) == WHOLE.decode(LARGE)
    event = decode_event(memoryview(LARGE))
    assert event == msgspec.json.decode(LARGE, type=SubscribeToShardEvent)
    assert [each.data for each in event.records] == data


def test_the_decoder_of_json_sees_no_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take five times as long."""
    seen: list[bytes] = []

    class Watched:
        def decode(self, body: bytes) -> Page:
            seen.append(body)
            return WHOLE.decode(body)

    monkeypatch.setattr(decoding, "_DECODER", Watched())
    assert decode_page(LARGE) == WHOLE.decode(LARGE)
    assert [len(body) < 1000 for body in seen] == [True]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(page_of_sizes([200] * 100), id="small records"),
        pytest.param(page_of_sizes([200] * 20 + [50_000]), id="small at the start"),
        pytest.param(page_of_sizes([]), id="no records"),
        pytest.param(json.dumps({"Records": [record(b"x" * 5000)]}).encode(), id="spaces"),
        pytest.param(b"x" * 5000, id="no JSON"),
        pytest.param(LARGE[:30_000], id="cut in data"),
        pytest.param(LARGE.replace(b"AAAA", b"AA*A", 1), id="no base64"),
        pytest.param(LARGE.replace(b"AAAA", b"AAA=", 1), id="padding inside"),
        pytest.param(LARGE.replace(b"AAAA", b"AA\\/A", 1), id="escaped slash"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_small_or_in_another_form_is_left_to_the_decoder(body: bytes) -> None:
    assert take_out(body) is None


def test_a_mark_is_not_taken_for_another_records_data() -> None:
    """Here as many data are found as there are records, but not one in each record."""
    first = compact(record(b"x")).replace(b'"Data":', b'"Data" :')
    second = compact(record(b"z", SequenceNumber="6")).replace(b'"Data":', b'"Data":"eQ==","Data":')
    twice = b'{"Records":[' + first + b"," + second + b"]}"
    nested = compact({"Records": [record(b"x", New={"Data": "eQ=="})]})
    with patch.object(decoding, "_LARGE", 1):
        taken = take_out(twice)
        assert taken is not None
        assert taken[1] == [b"y", b"z"]
        assert [each.data for each in decode_page(twice).records] == [b"x", b"z"]
        assert [each.data for each in decode_page(nested).records] == [b"x"]


def test_more_records_than_a_page_has() -> None:
    with patch.object(decoding, "_LARGE", 1):
        body = page_of_sizes([1] * 10_001)
        assert decode_page(body) == WHOLE.decode(body)


def test_an_error_of_a_large_page_names_the_field_and_shows_no_data() -> None:
    body = compact({"Records": [record(b"secret" * 1000, SequenceNumber=1)]})
    with pytest.raises(ServiceError, match=r"`str`.*SequenceNumber|SequenceNumber") as error:
        decode_page(body)
    assert str(len(body)) in str(error.value)  # of the whole body, not of the rest
    assert "c2VjcmV0" not in str(error.value)


def test_an_error_of_a_large_page_counts_the_bytes_of_the_whole() -> None:
    body = LARGE[:-4] + b"?" + LARGE[-4:-2] + b"?"
    with pytest.raises(msgspec.DecodeError, match="byte") as whole:
        WHOLE.decode(body)
    with pytest.raises(ServiceError) as error:
        decode_page(body)
    assert str(whole.value) in str(error.value)


bodies = st.lists(st.binary(max_size=12), max_size=4).map(
    lambda datas: records_of(datas, MillisBehindLatest=3)
)
insertions = st.lists(
    st.tuples(
        st.integers(0, 600),
        st.sampled_from(
            (
                *(b'"Data":"', b'"Data":"YQ==",', b'"Data" :"YWI=",', b'{"Data":"YQ=="}'),
                *(b'"New":{"Data":"YQ=="},', b'"New":[{"Data":""}],', b'"', b"\\/", b"\\"),
                *(b"=", b"A", b"AA==", b"AAAA", b"AAAB", b"-", b"_", b" ", b"\n", b"\xff"),
                *(b"{", b"}", b","),
            )
        ),
        st.integers(0, 3),
    ),
    max_size=3,
)


@settings(max_examples=examples(300), deadline=None)
@given(bodies, insertions)
@example(compact({"Records": [record(b"a")]}), [(66, b"B", 1)])
def test_any_body_gives_what_decoding_the_whole_gives(
    body: bytes, changes: list[tuple[int, bytes, int]]
) -> None:
    for place, inserted, removed in changes:
        at = place % (len(body) + 1)
        body = body[:at] + inserted + body[at + removed :]
    try:
        expected: Page | None = WHOLE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        expected = None
    with patch.object(decoding, "_LARGE", 1):
        try:
            found: Page | None = decode_page(body)
        except ServiceError as error:
            found = None
            if "SequenceNumber is not a number" in str(error):
                return
    if not isinstance(found, MendedPage):  # what was inserted put the numbers out of order
        assert found == expected


@settings(max_examples=examples(300), deadline=None)
@given(st.text(st.sampled_from("AQgwz09+/=-_ "), max_size=9))
@example("YR==")
@example("YWJ=")
def test_any_text_is_base64_or_not_for_both_decoders(text: str) -> None:
    body = compact({"Records": [{**record(b""), "Data": text}]})
    try:
        expected: bytes | None = WHOLE.decode(body).records[0].data
    except msgspec.ValidationError:
        expected = None
    with patch.object(decoding, "_LARGE", 1):
        taken = take_out(body)
    if taken is not None:
        assert taken[1] == [expected]
