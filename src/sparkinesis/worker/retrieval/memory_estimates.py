"""Estimates of the memory that records take, in bytes. Pure.

Measured with CPython 3.10 to 3.12 on 64 bits; tests compare the estimates with what is allocated. A
record's size is that of its data and its partition key.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.kpl.unpack import is_aggregated
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.budget import LARGEST_PAGE, MAX_RECORDS_PER_CALL

RECORD_OVERHEAD = 280
"""Of a decoded record, besides its size: five objects, of which one is the sequence number."""

_RESPONSE_FACTOR = 3
"""Times the size of the records: an answer on its way has them as JSON, in base64, once in pieces
and once whole; then the JSON is decoded while it is still there."""

LARGEST_RECORD = 1_048_576
"""Bytes, mostly: what a record may have whose size is not known."""

_COLUMNS_OVERHEAD = 130
"""Of a user record in Arrow columns, besides its size: the names of stream and shard, the sequence
number, offsets."""

_OBJECTS_OVERHEAD = 200
"""Of a user record as Python objects, besides what it takes in columns once more."""

ROW_OVERHEAD = 2 * _COLUMNS_OVERHEAD + _OBJECTS_OVERHEAD
"""Of a user record that was not aggregated, in a batch, besides twice its size."""

FIRST_EXPANSION = 20.0
"""Times the size of an aggregated record: its user records in a batch, until it is known. User
records of 20 bytes take that much."""

WITHOUT_UNPACKING = 2.5
"""The same where aggregated records are not unpacked."""


def response_memory(size: int, records: int) -> int:
    """The memory of a call or event that gives so many records of ``size`` bytes in all."""
    return _RESPONSE_FACTOR * size + RECORD_OVERHEAD * records


WHOLE_PAGE = response_memory(LARGEST_PAGE, MAX_RECORDS_PER_CALL)
"""The memory of the largest GetRecords answer while it is fetched."""


def page_memory(fetched: Fetched) -> int:
    """The memory of a page."""
    return fetched.size + RECORD_OVERHEAD * len(fetched.page.records)


def records_within(fetched: Fetched, room: int) -> int:
    """How many of a page's records fit into so much memory; one at least."""
    return _within([_size(record) + RECORD_OVERHEAD for record in fetched.page.records], room)


def batch_memory(columns_size: int, rows: int) -> int:
    """The memory of a batch whose columns take ``columns_size``, with its Python objects.

    A processor that asks for Arrow only does without the objects, but nobody knows before.
    """
    return 2 * columns_size + _OBJECTS_OVERHEAD * rows


def estimate_batch_memory(fetched: Fetched, expansion: float) -> int:
    """The memory of the batch that is made of a page.

    expansion: how often an aggregated record's size its user records take.
    """
    aggregated = sum([_size(r) for r in fetched.page.records if is_aggregated(r.data)])
    others = max(0, fetched.size - aggregated)
    return 2 * others + ROW_OVERHEAD * len(fetched.page.records) + round(expansion * aggregated)


def largest_batch_memory(fetched: Fetched, expansion: float) -> int:
    """The same, if all records were aggregated: without a look at each of them."""
    return round(max(2.0, expansion) * fetched.size) + ROW_OVERHEAD * len(fetched.page.records)


def batch_records_within(records: Sequence[Record], room: int, expansion: float) -> int:
    """How many of the records give a batch within so much memory; one at least."""
    return _within(_batch_sizes(records, expansion), room)


def measure_expansion(records: Sequence[Record], memory: int) -> float:
    """How often their size aggregated records take in a batch that takes ``memory``.

    One at least of the records is aggregated.
    """
    others = sum(_batch_sizes([r for r in records if not is_aggregated(r.data)], 1.0))
    aggregated = sum([_size(r) for r in records if is_aggregated(r.data)])
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


def _within(sizes: Sequence[int], room: int) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > room:
            return max(1, count)
    return len(sizes)
