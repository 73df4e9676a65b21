"""Shares the ranges of a batch out to Spark's tasks: a task reads several light shards. Pure.

A task costs Spark some 20 to 50 ms, however few records the task reads. Only neighbours share a
task, and a task reads its ranges one after the other, so the order of a batch's rows does not
depend on how the ranges are shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_Range = TypeVar("_Range")

MAX_SHARDS = 8
"""The most shards of a task. Each takes two or three calls, one after the other."""

MIN_TASKS = 4
"""The fewest tasks of a batch that has so many shards: small batches are read in parallel, too."""

MAX_RECORDS = 4_000
"""The most records of a task that reads several shards."""


def share_out(
    ranges: Sequence[tuple[_Range, int | None]],
) -> Iterator[list[tuple[_Range, int | None]]]:
    """Yield the ranges of each task, in order.

    ranges: with the number of records of each, about. A range whose number is not known, None, is a
    task of its own.
    """
    together: list[tuple[_Range, int | None]] = []
    total = 0
    most = max(1, min(MAX_SHARDS, len(ranges) // MIN_TASKS))
    for one, records in ranges:
        is_full = records is None or total + records > MAX_RECORDS or len(together) == most
        if together and is_full:
            yield together
            together, total = [], 0
        together.append((one, records))
        if records is None:
            yield together
            together, total = [], 0
        else:
            total += records
    if together:
        yield together
