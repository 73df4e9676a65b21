"""What producers put around a payload is taken off, and hostile data gives None."""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64decode
from datetime import datetime, timezone
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

import pytest

from sparkinesis import payloads
from sparkinesis.payloads import (
    connect_decimal,
    dynamodb_record,
    glue_record,
    gunzip,
    spring_record,
)
from tests.producers import (
    DECIMALS,
    GLUE,
    HOSTILE,
    SPRING,
    change,
)


def test_gzip_of_one_member_and_of_several_is_opened() -> None:
    big = json.dumps([*range(20_000)]).encode()
    assert gunzip(gzip.compress(big)) == big
    assert gunzip(gzip.compress(b"taxi ") + gzip.compress(b"") + gzip.compress(big)) == (
        b"taxi " + big
    )
    assert gunzip(gzip.compress(b"")) == b""


@pytest.mark.parametrize("cut", [1, 8, 40])
def test_damaged_gzip_is_none(cut: int) -> None:
    whole = gzip.compress(json.dumps([*range(20_000)]).encode())
    assert gunzip(whole[:-cut]) is None
    assert gunzip(whole + b"?" * cut) is None
    assert gunzip(whole[:500] + b"?" + whole[501:]) is None


def test_a_payload_that_becomes_too_large_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MOST_BYTES", 1000)
    assert gunzip(gzip.compress(b"0" * 1000)) == b"0" * 1000
    assert gunzip(gzip.compress(b"0" * 1001)) is None
    assert gunzip(gzip.compress(b"0" * 500) * 3) is None


def test_each_member_costs_its_own_bytes_and_not_those_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record of 10 MiB has room for half a million members."""
    from zlib_ng import zlib_ng  # noqa: PLC0415 - it is patched

    passed = []

    class Counted:
        def __init__(self, format_: int) -> None:
            self._stream = make(format_)

        def decompress(self, piece: bytes, most: int) -> bytes:
            passed.append(len(piece))
            return self._stream.decompress(piece, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

    make = zlib_ng.decompressobj
    monkeypatch.setattr(zlib_ng, "decompressobj", Counted)
    assert gunzip(gzip.compress(b"") * 5000) == b""
    assert sum(passed) < 5000 * 5000


def test_the_header_of_the_glue_schema_registry_is_taken_off() -> None:
    for peer in ("java", "python"):
        for record in GLUE[peer].values():
            assert glue_record(b64decode(record)) == (GLUE["schemaId"], b64decode(GLUE["avro"]))
    header = UUID(GLUE["schemaId"]).bytes
    assert glue_record(b"\x03\x00" + header) == (GLUE["schemaId"], b"")
    assert glue_record(b"\x03\x05" + header + b"late") == (GLUE["schemaId"], None)
    deflated = b"\x03\x05" + header + zlib.compress(b"late") + b"more"
    assert glue_record(deflated) == (GLUE["schemaId"], b"late")


@pytest.mark.parametrize("start", [b"\x03\x04", b"\x02\x00", b"{}"])
def test_a_record_without_the_header_of_the_glue_schema_registry_is_none(start: bytes) -> None:
    assert glue_record(start + bytes(20)) is None
    assert glue_record(b"\x03\x00" + bytes(15)) is None


def test_the_headers_of_spring_are_taken_off() -> None:
    for name, payload in (("flight", b'{"plane": "N14228"}'), ("empty", b"")):
        found = spring_record(b64decode(SPRING[name]))
        assert found is not None
        headers, rest = found
        assert rest == payload
        assert headers is not None
        assert headers["contentType"] == "application/json"
        assert headers["gate"] == "A\u00e9"
        assert (headers["delay"], headers["late"]) == (11, True)
        assert headers["flight"] == ["java.util.UUID", "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"]


def test_bytes_that_only_look_like_lengths_are_none() -> None:
    assert spring_record(bytes(8)) is None


def test_headers_of_spring_that_are_not_json_leave_the_payload() -> None:
    assert spring_record(b"\x00\x00\x00\x03{\xff}\x00\x00\x00\x04late") == (None, b"late")
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    record = len(deep).to_bytes(4, "big") + deep + b"\x00\x00\x00\x01?"
    assert spring_record(record) == (None, b"?")


@pytest.mark.parametrize("cut", [1, 20, 270, 290])
def test_a_record_of_spring_that_is_cut_is_none(cut: int) -> None:
    assert spring_record(b64decode(SPRING["flight"])[:-cut]) is None
    assert spring_record(b64decode(SPRING["flight"]) + b"?" * cut) is None


EVERY_TYPE: dict[str, Any] = {
    "text": {"S": "N14228"},
    "whole": {"N": "-11"},
    "exact": {"N": "12345678901234567890123456789012345678"},
    "small": {"N": "1.5E-100"},
    "flag": {"BOOL": False},
    "nothing": {"NULL": True},
    "bytes": {"B": "AP8="},
    "texts": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2.5"]},
    "binaries": {"BS": ["AA==", "/w=="]},
    "list": {"L": [{"S": "a"}, {"N": "1"}, {"L": []}, {"M": {}}]},
    "map": {"M": {"inner": {"M": {"deep": {"NULL": True}}}}},
}


def test_a_change_of_dynamodb_has_plain_values() -> None:
    assert dynamodb_record(change(NewImage=EVERY_TYPE)) == {
        "eventID": "f8a7-1",
        "eventName": "MODIFY",
        "tableName": "flights",
        "userIdentity": None,
        "ApproximateCreationDateTime": datetime(2026, 9, 21, 14, 13, 20, 123000, timezone.utc),
        "Keys": {"plane": "N14228"},
        "NewImage": {
            "text": "N14228",
            "whole": Decimal(-11),
            "exact": Decimal(12345678901234567890123456789012345678),
            "small": Decimal("1.5E-100"),
            "flag": False,
            "nothing": None,
            "bytes": b"\x00\xff",
            "texts": {"a", "b"},
            "numbers": {Decimal(1), Decimal("2.5")},
            "binaries": {b"\x00", b"\xff"},
            "list": ["a", Decimal(1), [], {}],
            "map": {"inner": {"deep": None}},
        },
        "OldImage": None,
    }


def test_the_time_of_a_change_is_in_the_unit_that_its_own_field_names() -> None:
    micros = change(
        ApproximateCreationDateTime=1_790_000_000_123_456,
        ApproximateCreationDateTimePrecision="MICROSECOND",
    )
    found = dynamodb_record(micros)
    assert found is not None
    assert found["ApproximateCreationDateTime"].microsecond == 123_456
    assert found["ApproximateCreationDateTime"].year == 2026


def test_a_change_without_images_has_keys() -> None:
    found = dynamodb_record(change(NewImage={}))
    assert found is not None
    assert (found["NewImage"], found["OldImage"]) == ({}, None)


@pytest.mark.parametrize(
    "wrong",
    [
        change(Keys=None),
        change(Keys={"plane": "N14228"}),
        change(NewImage={"plane": {"X": "1"}}),
        change(NewImage={"plane": {"S": "1", "N": "1"}}),
        change(NewImage={"plane": {}}),
        change(NewImage={"plane": {"N": "1e999999999"}}),
        change(NewImage={"plane": {"N": "late"}}),
        change(NewImage={"plane": {"N": "NaN"}}),
        change(NewImage={"plane": {"B": "?"}}),
        change(NewImage={"plane": {"B": 5}}),
        change(NewImage={"plane": {"L": 5}}),
        change(NewImage={"plane": {"L": [5]}}),
        change(NewImage={"plane": {"M": [5]}}),
        change(NewImage={"plane": {"SS": [[]]}}),
        change(ApproximateCreationDateTime=2**63 - 1),
        change(ApproximateCreationDateTime="late"),
        change()[:-9],
        change().replace(b"N14228", b"\xff"),
    ],
)
def test_what_is_no_change_of_dynamodb_is_none(wrong: bytes) -> None:
    assert dynamodb_record(wrong) is None


def test_a_list_that_is_too_deep_is_none() -> None:
    deep = '{"L":[' * 50_000 + '{"S":"a"}' + "]}" * 50_000
    record = change(NewImage={"plane": {"S": "HERE"}}).replace(b'{"S": "HERE"}', deep.encode())
    assert dynamodb_record(record) is None


def test_a_decimal_of_kafka_connect_is_exact_in_any_context() -> None:
    with localcontext() as context:
        context.prec = 5
        for number, text in DECIMALS.items():
            digits = number.replace(".", "").lstrip("-")
            expected = str(Decimal(number)) if len(digits) <= 38 else "None"
            assert str(connect_decimal(text, 2)) == expected
    assert connect_decimal("BNI=", 0) == 1234


@pytest.mark.parametrize("wrong", ["", "BNI", "?", "BNI=?", "f39/" * 1000, "\u00e9", None, 5])
def test_what_is_no_decimal_is_none(wrong: Any) -> None:
    assert connect_decimal(wrong, 2) is None


@pytest.mark.parametrize("data", HOSTILE)
def test_nothing_is_raised_whatever_the_data(data: bytes) -> None:
    for function in (gunzip, glue_record, spring_record, dynamodb_record):
        function(data)
