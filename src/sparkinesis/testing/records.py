"""The records that a test gives, in the forms in which people write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sparkinesis.stream.kpl.pack import AggregatedBlob

Given: TypeAlias = bytes | str | tuple[str, bytes | str] | AggregatedBlob | Mapping[str, Any]
"""The data of a record; a pair of partition key and data; an aggregate that
`sparkinesis.aggregate` made; or an entry of PutRecords. Texts are encoded in UTF-8."""

_KEY = "key"
"""The partition key of records that are given without one."""


def entries(records: Iterable[Given]) -> list[dict[str, Any]]:
    """Return the entries of PutRecords. Raises TypeError for a record in another form."""
    return [_entry(one) for one in records]


def _entry(given: Given) -> dict[str, Any]:
    if isinstance(given, bytes | str):
        return {"Data": _bytes(given), "PartitionKey": _KEY}
    if isinstance(given, AggregatedBlob):
        hash_key = {"ExplicitHashKey": given.explicit_hash_key} if given.explicit_hash_key else {}
        return {"Data": given.data, "PartitionKey": given.partition_key, **hash_key}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return {"Data": _bytes(given[1]), "PartitionKey": given[0]}
    raise TypeError(
        f"{given!r} is no record. Give its data, a pair of partition key and data, an aggregate, "
        "or an entry of PutRecords."
    )


def _bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"the data of a record is {data!r}; it must be bytes or a text.")
