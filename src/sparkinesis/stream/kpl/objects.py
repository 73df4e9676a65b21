"""Unpacks records into one object for each user record, without columns.

The rules are those of `sparkinesis.stream.kpl.unpack`: a malformed aggregate is one user record,
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, repeat
from typing import NamedTuple, TypeVar

from sparkinesis.stream.kpl.hash_filter import keep
from sparkinesis.stream.kpl.magic import is_aggregated
from sparkinesis.stream.page import Record

_T = TypeVar("_T")

Make = Callable[[bytes, str | None, str, int, float | None, str | None, str], _T]
"""Makes an object of: data, partition key, sequence number, sub-sequence number, arrival time in
epoch seconds, explicit hash key, shard id."""

_SAMPLE = 4
"""The most aggregates of a page that are opened for an estimate."""


def make_objects(
    records: Sequence[Record],
    make: Make[_T],
    shard_id: str,
    *,
    deaggregate: bool = True,
    hash_range: tuple[int, int] | None = None,
) -> tuple[list[_T], int]:
    """Return an object for each user record, in stream order, and the number of those left out.

    deaggregate: False if none is to be unpacked, or none starts like an aggregate.
    hash_range: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None for no filter.
    """
    if not deaggregate:
        return [
            make(
                record.data,
                record.partition_key,
                record.sequence_number,
                0,
                record.approximate_arrival_timestamp,
                None,
                shard_id,
            )
            for record in records
        ], 0
    # The protobuf runtime is imported with the first aggregate, which most applications never see.
    from sparkinesis.stream.kpl.envelope import messages_of, user_records_of  # noqa: PLC0415

    made: list[_T] = []
    dropped = 0
    for record, message in zip(records, messages_of(records), strict=True):
        users = None if message is None else user_records_of(message)
        if users is None:
            made += make_objects([record], make, shard_id, deaggregate=False)[0]
            continue
        objects = map(
            make,
            users.data,
            users.partition_keys(),
            repeat(record.sequence_number),
            range(len(users.data)),
            repeat(record.approximate_arrival_timestamp),
            users.explicit_hash_keys(),
            repeat(shard_id),
        )
        if hash_range is None:
            made += objects
        else:
            keys = list(zip(users.partition_keys(), users.explicit_hash_keys(), strict=True))
            kept = keep(record, keys, hash_range)
            made += compress(objects, kept)
            dropped += kept.count(False)
    return made, dropped


def last_sub_sequence_number(record: Record) -> int:
    """Return the sub-sequence number of the last user record in a record."""
    unpacks = is_aggregated(record.data)
    return len(make_objects([record], _nothing, "", deaggregate=unpacks)[0]) - 1


class UnpackedSize(NamedTuple):
    """The approximate size of the user records of some aggregates."""

    rows: int
    keys: int
    """Bytes of their keys, if each has its own copy."""


def estimate_unpacked(aggregates: Sequence[Record]) -> UnpackedSize:
    """Estimate the user records of aggregates by a sample of these, without checking digests."""
    if not aggregates:
        return UnpackedSize(0, 0)
    from sparkinesis.stream.kpl.envelope import count_of  # noqa: PLC0415 - see above

    data = [record.data for record in aggregates]
    sample = data[:: 1 + len(data) // _SAMPLE]
    scale = sum(map(len, data)) / sum(map(len, sample))
    found = [count_of(each) for each in sample]
    rows = round(scale * sum([rows for rows, _ in found]))
    keys = round(scale * sum([keys for _, keys in found]))
    return UnpackedSize(rows, keys)


def _nothing(*_: object) -> None:
    return None
