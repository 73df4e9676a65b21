"""The hash-range filter: only user records of aggregates are dropped, and only other shards'."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from tests.examples import examples

TOP = 2**128 - 1

UserRecord = tuple[str, str | None, bytes]
"""Partition key, explicit hash key, data."""


@dataclass(frozen=True)
class Put:
    """What somebody put: one user record, or several that are packed by aws-kinesis-agg."""

    users: tuple[UserRecord, ...]
    is_packed: bool
    is_damaged: bool = False
    key: str | None = "a"


def place_of(user: UserRecord) -> int:
    """The hash key of a user record, by the service's documentation."""
    key, explicit, _ = user
    return int(hashlib.md5(key.encode()).hexdigest(), 16) if explicit is None else int(explicit)


def packed(users: tuple[UserRecord, ...]) -> bytes:
    aggregator = RecordAggregator()
    for key, explicit, data in users:
        assert aggregator.add_user_record(key, data, explicit) is None
    blob: bytes = aggregator.clear_and_get().get_contents()[2]
    return blob


def record_of(put: Put, number: int) -> Record:
    data = packed(put.users) if put.is_packed else put.users[0][2]
    if put.is_damaged:
        data = data[:-1] + bytes([data[-1] ^ 1])
    return Record(data=data, partition_key=put.key, sequence_number=str(number))


def expected_rows(
    puts: list[Put], first: int, last: int, *, deaggregate: bool
) -> tuple[list[tuple[str, int]], int]:
    """The places of the rows to deliver, by the KCL's rule for each user record; and the drops.

    A KPL puts an aggregate with the partition key "a", by the hash key of its first user record.
    """
    rows: list[tuple[str, int]] = []
    dropped = 0
    for number, put in enumerate(puts, 1):
        if not put.is_packed or put.is_damaged or not deaggregate:
            rows.append((str(number), 0))
            continue
        is_kpls = put.key == "a" and first <= place_of(put.users[0]) <= last
        for sub, user in enumerate(put.users):
            if not is_kpls or first <= place_of(user) <= last:
                rows.append((str(number), sub))
            else:
                dropped += 1
    return rows, dropped


def filtered(
    records: list[Record], hash_range: tuple[int, int], *, deaggregate: bool = True
) -> tuple[Sequence[Any], int]:
    """The user records of a batch, and the number of those that were dropped."""
    batch, dropped = make_batch(
        records,
        stream="s",
        shard_id="shard",
        millis_behind_latest=0,
        aggregates=None if deaggregate else (),
        hash_range=hash_range,
    )
    return batch.records, dropped


hash_keys = st.integers(0, TOP) | st.sampled_from((0, 1, 2**127 - 1, 2**127, TOP))
users = st.tuples(st.text("ab\u00e9", min_size=1, max_size=3), st.none() | hash_keys.map(str)).map(
    lambda keys: (*keys, b"data of " + keys[0].encode())
)
puts = st.builds(
    Put,
    st.lists(users, min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.sampled_from((False, False, True)),
    st.sampled_from(("a", "a", "b", None)),
)


class TestTheFilter:
    @settings(deadline=None, max_examples=examples(75))
    @given(st.lists(puts, max_size=6), st.tuples(hash_keys, hash_keys), st.booleans())
    @example([Put((("k", "5", b"plain"),), is_packed=False)], (6, 9), True)
    @example([Put((("k", "7", b""), ("k", "5", b"")), is_packed=True)], (6, 9), True)
    @example([Put((("k", "5", b""), ("k", "7", b"")), is_packed=True)], (6, 9), True)
    @example([Put((("k", "7", b""), ("k", "5", b"")), is_packed=True, key="k")], (6, 9), True)
    @example([Put((("k", "5", b""),), is_packed=True, is_damaged=True)], (6, 9), True)
    @example([Put((("k", "5", b""),), is_packed=True)], (6, 9), False)
    @example([Put((("k", "5", b""),), is_packed=True, key=None)], (6, 9), True)
    def test_drops_the_strangers_inside_of_aggregates_and_nothing_else(
        self, put: list[Put], bounds: tuple[int, int], deaggregate: bool
    ) -> None:
        first, last = min(bounds), max(bounds)
        records = [record_of(each, number) for number, each in enumerate(put, 1)]
        found, dropped = filtered(records, (first, last), deaggregate=deaggregate)
        rows = [(r.sequence_number, r.sub_sequence_number) for r in found]
        assert (rows, dropped) == expected_rows(put, first, last, deaggregate=deaggregate)

    @pytest.mark.parametrize("explicit", ["-5", "1" * 60, "five", "1e3"])
    def test_keeps_a_user_record_whose_hash_key_no_shard_takes(self, explicit: str) -> None:
        """No producer puts that one again."""
        blob = packed((("k", "7", b"x"), ("k", "1" * len(explicit), b"y")))
        message = blob[4:-16].replace(b"1" * len(explicit), explicit.encode())
        sealed = blob[:4] + message + hashlib.md5(message).digest()
        record = Record(data=sealed, partition_key="a", sequence_number="1")
        found, dropped = filtered([record], (6, 9))
        assert [one.data for one in found] == [b"x", b"y"]
        assert dropped == 0

    def test_keeps_an_aggregate_whose_first_hash_key_is_not_a_number(self) -> None:
        """No KPL put it by that key."""
        blob = packed((("k", "1111", b"x"), ("k", "5", b"y")))
        message = blob[4:-16].replace(b"1111", b"five")
        sealed = blob[:4] + message + hashlib.md5(message).digest()
        found, dropped = filtered(
            [Record(data=sealed, partition_key="a", sequence_number="1")], (6, 9)
        )
        assert [one.data for one in found] == [b"x", b"y"]
        assert dropped == 0
