"""A function that splits a page in two. Pure."""

from __future__ import annotations

import math

import msgspec

from sparkinesis.stream.calls.client import Fetched


def split_page(fetched: Fetched, count: int) -> tuple[Fetched, Fetched]:
    """Split a page after ``count`` records into two pages.

    Both parts must have records. The first part is behind the shard's tip, and names no children.
    """
    page = fetched.page
    first, others = page.records[:count], page.records[count:]
    behind = page.millis_behind_latest
    if behind is not None:
        arrival = others[0].approximate_arrival_timestamp
        age = 0 if arrival is None else fetched.service_time_ms - math.floor(arrival * 1000)
        behind = max(behind, age, 1)
    size = sum(len(record.data) + len(record.partition_key or "") for record in first)
    size = min(size, fetched.size)
    head = msgspec.structs.replace(
        page, records=first, millis_behind_latest=behind, child_shards=None
    )
    tail = msgspec.structs.replace(page, records=others)
    return (
        Fetched(head, size, fetched.service_time_ms),
        Fetched(tail, fetched.size - size, fetched.service_time_ms),
    )
