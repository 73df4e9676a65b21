"""Large data is decoded apart from the rest of an answer, with the result of decoding the whole."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.errors import ServiceError
from sparkinesis.stream.calls.answers import decoding
from sparkinesis.stream.calls.answers.decoding import decode_event, decode_page, take_out
from sparkinesis.stream.page import Event, MendedPage, Page
from tests.examples import examples

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


def page_of(sizes: list[int]) -> bytes:
    return records_of([bytes([n % 256]) * size for n, size in enumerate(sizes)])


def records_of(datas: list[bytes], **others: Any) -> bytes:
    """A page in order."""
    records = [record(data, SequenceNumber=str(n)) for n, data in enumerate(datas, 20_000)]
    return compact({"Records": records, **others})


LARGE = page_of([1000, 50_000, 0, 3000, 1])


def test_large_data_is_taken_out_and_put_back() -> None:
    taken = take_out(LARGE)
    assert taken is not None
    rest, data = taken
    assert [len(each) for each in data] == [1000, 50_000, 0, 3000, 1]
    assert len(rest) < 1000  # the decoder of the rest sees no data
    assert decode_page(LARGE) == WHOLE.decode(LARGE)
    event = decode_event(memoryview(LARGE))
    assert event == msgspec.json.decode(LARGE, type=Event)
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
        pytest.param(page_of([200] * 100), id="small records"),
        pytest.param(page_of([200] * 20 + [50_000]), id="small at the start"),
        pytest.param(page_of([]), id="no records"),
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
        body = page_of([1] * 10_001)
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
