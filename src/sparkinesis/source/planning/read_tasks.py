"""Shares the ranges of a batch out to Spark's tasks: a task reads several light shards. Pure.

A task costs Spark some 20 to 50 ms, however few records the task reads. Only neighbours share a
task, and a task reads its ranges one after the other, so the order of a batch's rows does not
depend on how the ranges are shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.stream.position import ShardRange

if TYPE_CHECKING:
    from sparkinesis.stream.page import Record

MAX_SHARDS = 8
"""The most shards of a task. Each takes two or three calls, one after the other."""

MIN_TASKS = 4
"""The fewest tasks of a batch that has so many shards: small batches are read in parallel, too."""

MAX_RECORDS = 4_000
"""The most records of a task that reads several shards."""

MAX_CARRIED = 500_000
"""The most bytes of records that a task is handed: Spark warns of a task of a mebibyte."""


@dataclass(frozen=True, slots=True)
class ToRead:
    """A range of a batch, and what the planner knows of it."""

    shard_range: ShardRange
    expected: int | None = None
    """The number of its records, about; None if it is not known."""
    carried: Sequence[Record] | None = None
    """The records, if the planner has them: the task needs no call."""


def share_out(ranges: Sequence[ToRead]) -> Iterator[list[ToRead]]:
    """Yield the ranges of each task, in order.

    A range whose number of records is not known is a task of its own. Ranges that the planner has
    the records of share a task as long as they are few, however many there are.
    """
    together: list[ToRead] = []
    records: int | None = 0
    size = 0
    most = max(1, min(MAX_SHARDS, len(ranges) // MIN_TASKS))
    for one in ranges:
        is_carried = one.carried is not None
        own = sum(len(record.data) for record in one.carried or ())
        if together:
            fits = (
                records is not None
                and one.expected is not None
                and records + one.expected <= MAX_RECORDS
                and is_carried == (together[0].carried is not None)
                and (size + own <= MAX_CARRIED if is_carried else len(together) < most)
            )
            if not fits:
                yield together
                together, records, size = [], 0, 0
        together.append(one)
        records = None if records is None or one.expected is None else records + one.expected
        size += own
    if together:
        yield together
