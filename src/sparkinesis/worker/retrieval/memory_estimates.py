"""Estimates of the memory that records take, in bytes. Pure.

Measured with CPython 3.10 to 3.12 on 64 bits; tests compare the estimates with what is allocated. A
record's size is that of its data and its partition key.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.stream.kpl.magic import aggregates_of, is_aggregated
from sparkinesis.stream.kpl.objects import UnpackedSize
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Record
from sparkinesis.stream.reading.budget import LARGEST_PAGE

RECORD_OVERHEAD = 280
"""Bytes of a decoded record besides its size: five objects, one of them the sequence number."""

_RESPONSE_FACTOR = 3
"""The memory of an answer while it is received, as a multiple of its records' size: the records are
there as JSON, in base64, once in pieces and once whole, and then once more decoded."""

LARGEST_RECORD = 1_048_576
"""Bytes: the assumed size of a record whose size is not known. Larger ones are rare."""

_COLUMNS_OVERHEAD = 130
"""Bytes of a user record in Arrow columns besides its size: the names of stream and shard, the
sequence number, offsets."""

_PLAIN_OBJECT = 90
"""Bytes of a record's object in a batch, if it was not aggregated: it shares data and keys."""

_UNPACKED_OBJECT = 160
"""Bytes of the object of an aggregate's user record besides its size."""

ROW_OVERHEAD = RECORD_OVERHEAD + _PLAIN_OBJECT + _COLUMNS_OVERHEAD
"""Bytes of a user record in a batch besides twice its size, if it was not aggregated."""

_UNPACKED_OVERHEAD = _UNPACKED_OBJECT + _COLUMNS_OVERHEAD
"""The same if it was."""

FIRST_EXPANSION = 14.0
"""The memory of an aggregated record's user records in a batch, as a multiple of its size, until it
is measured. User records of 20 bytes take that much."""

WITHOUT_UNPACKING = 2.5
"""The same multiple if aggregated records are not unpacked."""


def response_memory(size: int, records: int) -> int:
    """Return the memory of an answer or event of this size while it is received."""
    return _RESPONSE_FACTOR * size + RECORD_OVERHEAD * records


WHOLE_PAGE = response_memory(LARGEST_PAGE, MAX_RECORDS_PER_CALL)
"""The memory of the largest GetRecords answer while it is received."""


def page_memory(fetched: Fetched) -> int:
    """Return the memory of a decoded page."""
    return fetched.size + RECORD_OVERHEAD * len(fetched.page.records)


def records_within(fetched: Fetched, room: int) -> int:
    """Return the number of a page's records that fit into ``room`` bytes; at least one."""
    return _within([_size(record) + RECORD_OVERHEAD for record in fetched.page.records], room)


def batch_memory(records: Sequence[Record], unpacked: UnpackedSize | None) -> int:
    """Return the memory of the batch of ``records``, with Arrow columns and Python objects.

    unpacked: the estimate of their user records; None if aggregates are not unpacked.

    A processor that uses one of the two has only that, and the packed records until the other is
    made, but this is not known before. Packed records and columns are each of the records'
    size, and so are the objects of unpacked ones.
    """
    size = _size_of_all(records)
    if unpacked is None:
        return 2 * size + ROW_OVERHEAD * len(records)
    others = _UNPACKED_OVERHEAD * (unpacked.rows - unpacked.plain) + unpacked.keys
    return 2 * size + ROW_OVERHEAD * unpacked.plain + others


def estimate_batch_memory(fetched: Fetched, expansion: float) -> int:
    """Estimate the memory of the batch of a page.

    expansion: the memory of an aggregated record's user records, as a multiple of its size.
    """
    aggregated = _size_of_all(aggregates_of(fetched.page.records))
    others = max(0, fetched.size - aggregated)
    return 2 * others + ROW_OVERHEAD * len(fetched.page.records) + round(expansion * aggregated)


def largest_batch_memory(fetched: Fetched, expansion: float) -> int:
    """Return an upper bound of `estimate_batch_memory`, without reading each record."""
    return round(max(2.0, expansion) * fetched.size) + ROW_OVERHEAD * len(fetched.page.records)


def batch_records_within(records: Sequence[Record], room: int, expansion: float) -> int:
    """Return the number of records whose batch fits into ``room`` bytes; at least one."""
    return _within(_batch_sizes(records, expansion), room)


def measure_expansion(records: Sequence[Record], memory: int) -> float:
    """Return the expansion of the aggregated records in a batch that takes ``memory`` bytes.

    At least one of the records is aggregated.
    """
    others = sum(_batch_sizes([r for r in records if not is_aggregated(r.data)], 1.0))
    aggregated = _size_of_all(aggregates_of(records))
    return max(1.0, (memory - others) / aggregated)


def _batch_sizes(records: Sequence[Record], expansion: float) -> list[int]:
    return [
        round(_size(record) * expansion)
        if is_aggregated(record.data)
        else 2 * _size(record) + ROW_OVERHEAD
        for record in records
    ]


def _size(record: Record) -> int:
    return len(record.data) + len(record.partition_key or "")


def _size_of_all(records: Sequence[Record]) -> int:
    """Return the size of many records; every batch is measured so, without a call per record."""
    return sum([len(r.data) + len(r.partition_key or "") for r in records])


def _within(sizes: Sequence[int], room: int) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > room:
            return max(1, count)
    return len(sizes)
