"""The rows of a range's records, fetched by the task or handed on by the planner."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparkinesis.stream.page import Record
from sparkinesis.stream.position import ShardRange, user_records_done
from sparkinesis.stream.reading.arrow import to_arrow


def record_rows(
    records: Sequence[Record], stream: str, shard_range: ShardRange, deaggregate: bool
) -> pa.RecordBatch:
    """Return the rows of these records of ``shard_range``: all of them, or a part, in order."""
    rows = to_arrow(records, stream=stream, shard_id=shard_range.shard_id, deaggregate=deaggregate)
    # Without deaggregation a row is a whole record, which cannot be delivered in part.
    done = user_records_done(records[0].sequence_number, shard_range.start) if deaggregate else 0
    return rows.slice(done)
