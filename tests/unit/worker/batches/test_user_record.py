"""A user record: what a user sees of it does not tell whether its arrival time was asked for."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from sparkinesis import UserRecord
from sparkinesis.worker.batches.user_record import arrived_ms, instant, make_user_record

AT = datetime(2026, 9, 21, 14, 13, 20, 123_000, timezone.utc)
SECONDS = 1_790_000_000.123


def by_a_user(**other: Any) -> UserRecord:
    fields: dict[str, Any] = {
        "data": b"x",
        "partition_key": "k",
        "sequence_number": "1",
        "sub_sequence_number": 2,
        "approximate_arrival_timestamp": AT,
        "explicit_hash_key": None,
        "shard_id": "s",
    }
    return UserRecord(**{**fields, **other})


def by_a_batch(seconds: float | None = SECONDS) -> UserRecord:
    return make_user_record(b"x", "k", "1", 2, seconds, None, "s")


def test_the_time_is_a_datetime_in_either() -> None:
    assert by_a_user().approximate_arrival_timestamp == AT
    assert by_a_batch().approximate_arrival_timestamp == AT
    assert by_a_batch(1_790_000_000).approximate_arrival_timestamp == AT.replace(microsecond=0)
    assert by_a_batch(None).approximate_arrival_timestamp is None
    assert UserRecord(b"x", "k", "1", 2, AT, None, "s") == by_a_user()


def test_both_are_equal_and_have_one_hash() -> None:
    assert by_a_user() == by_a_batch()
    assert not by_a_user() != by_a_batch()  # noqa: SIM202 - the other operator
    assert hash(by_a_user()) == hash(by_a_batch())
    assert repr(by_a_user()) == repr(by_a_batch())
    assert f"sub_sequence_number=2, approximate_arrival_timestamp={AT!r}," in repr(by_a_user())
    assert {by_a_user(), by_a_batch()} == {by_a_batch()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", b"y"),
        ("partition_key", None),
        ("sequence_number", "2"),
        ("sub_sequence_number", 3),
        ("approximate_arrival_timestamp", AT + timedelta(milliseconds=1)),
        ("explicit_hash_key", "1"),
        ("shard_id", "t"),
    ],
)
def test_another_value_is_another_record(name: str, value: object) -> None:
    assert by_a_user(**{name: value}) != by_a_batch()
    assert not by_a_user(**{name: value}) == by_a_batch()  # noqa: SIM201 - the other operator
    assert getattr(by_a_user(**{name: value}), name) == value


def test_it_is_equal_to_no_other_thing() -> None:
    class Other(UserRecord, frozen=True):
        pass

    other = Other(b"x", "k", "1", 2, AT, None, "s")
    assert other.approximate_arrival_timestamp == AT
    assert by_a_user() != other
    assert by_a_user() != "x"


@pytest.mark.parametrize("record", [by_a_user(), by_a_batch(), by_a_batch(None)])
def test_copies_are_equal(record: UserRecord) -> None:
    for again in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert again == record
        assert repr(again) == repr(record)
    assert msgspec.structs.replace(record, data=b"y").data == b"y"


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_790_000_000_123, 253_402_300_799_999])
def test_times_are_whole_milliseconds(milliseconds: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert instant(milliseconds / 1000) == epoch + timedelta(milliseconds=milliseconds)
    assert arrived_ms(by_a_batch(milliseconds / 1000)) == milliseconds
    assert arrived_ms(by_a_batch(None)) is None
