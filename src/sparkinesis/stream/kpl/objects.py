"""Unpacks records into one object for each user record, without columns.

The rules are those of `sparkinesis.stream.kpl.unpack`: a malformed aggregate is one user record,
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sparkinesis.stream.kpl.hash_filter import keep
from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.page import Record

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.envelope import Make

_T = TypeVar("_T")

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

    hash_range: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None for no filter.
    """
    if not (deaggregate and aggregates_of(records)):
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
    from sparkinesis.stream.kpl.envelope import make_all, messages_of  # noqa: PLC0415

    made: list[_T] = []
    dropped = 0
    for record, message in zip(records, messages_of(records), strict=True):
        users = None if message is None else make_all(message, record, make, shard_id)
        if message is None or users is None:
            users, _ = make_objects([record], make, shard_id, deaggregate=False)
        elif hash_range is not None:
            keys = make_all(message, record, _keys_of, shard_id) or []
            users = list(compress(users, keep(record, keys, hash_range)))
            dropped += len(keys) - len(users)
        made += users
    return made, dropped


def _keys_of(
    _data: bytes,
    partition_key: str | None,
    _number: str,
    _sub: int,
    _arrival: float | None,
    explicit_hash_key: str | None,
    _shard_id: str,
) -> tuple[str, str | None]:
    return partition_key or "", explicit_hash_key


def last_sub_sequence_number(record: Record) -> int:
    """Return the sub-sequence number of the last user record in a record."""
    return len(make_objects([record], _nothing, "")[0]) - 1


class UnpackedSize(NamedTuple):
    """The approximate size of the user records of some records."""

    rows: int
    plain: int
    """The number of rows whose records do not start like an aggregate."""
    keys: int
    """Bytes of the keys of aggregates' user records, if each has its own copy."""


def estimate_unpacked(records: Sequence[Record]) -> UnpackedSize:
    """Estimate the user records by a sample of the aggregates, without checking digests."""
    aggregates = [record.data for record in aggregates_of(records)]
    if not aggregates:
        return UnpackedSize(len(records), len(records), 0)
    from sparkinesis.stream.kpl.envelope import count_of  # noqa: PLC0415 - see above

    sample = aggregates[:: 1 + len(aggregates) // _SAMPLE]
    scale = sum(map(len, aggregates)) / max(1, sum(map(len, sample)))
    found = [count_of(data) for data in sample]
    rows = round(scale * sum([rows for rows, _ in found]))
    keys = round(scale * sum([keys for _, keys in found]))
    plain = len(records) - len(aggregates)
    return UnpackedSize(plain + rows, plain, keys)


def _nothing(*_: object) -> None:
    return None
