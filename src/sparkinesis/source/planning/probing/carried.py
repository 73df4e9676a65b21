"""The records that a plan hands to the tasks, which then need no call for them. Pure.

The planner has the first records of each shard in hand, and near the tip these are the whole batch.
A batch that is planned again, by another planner, has no such records: its tasks fetch them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkinesis.source.planning.batch_end import Records
from sparkinesis.source.planning.probing.end_in_shard import EndInShard
from sparkinesis.stream.page import Record

MOST_BYTES = 1_000_000
"""The most bytes of data that a plan hands to the tasks of one stream: the driver sends them, and
executors together fetch more sooner."""


def within_bounds(ends: Mapping[str, EndInShard]) -> dict[str, Sequence[Record]]:
    """Return the records of each shard, as long as all of them are within `MOST_BYTES`."""
    found: dict[str, Sequence[Record]] = {}
    left = MOST_BYTES
    for shard_id, end in ends.items():
        if isinstance(end.finding, Records) and end.kept is not None:
            left -= sum(len(record.data) for record in end.kept)
            if left < 0:
                break
            found[shard_id] = end.kept
    return found
