"""A task's work: read one shard's range and give it to Spark as Arrow batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pyarrow as pa
import pyarrow.compute as pc

from sparkinesis.source.options.read_options import ReadOptions
from sparkinesis.source.reading.subscribed_cursor import SubscribedCursor, Turn
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.subscription import OPERATION
from sparkinesis.stream.position import Position, ShardRange
from sparkinesis.stream.reading.arrow import to_arrow
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.machine_budget import machine_budget_state
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck, user_records_done


@functools.lru_cache(maxsize=4096)
def _budget(address: StreamAddress, shard_id: str, pace: Pace) -> ShardBudget:
    """One budget per shard and machine: its tasks run in any of Spark's Python workers."""
    return ShardBudget(
        pace, new_state=lambda operation: machine_budget_state(address, shard_id, (operation, pace))
    )


@functools.lru_cache(maxsize=4096)
def _turn(address: StreamAddress, shard_id: str, consumer_arn: str) -> Turn:
    """A shard's and consumer's subscriptions of a machine, likewise."""
    return Turn(machine_budget_state(address, shard_id, (OPERATION, consumer_arn)))


def read_records(
    options: ReadOptions,
    address: StreamAddress,
    wanted: ShardRange,
    expected: int | None = None,
    consumer_arn: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``wanted``, one Arrow batch a page. Raises `DataLossError` and service errors.

    ``expected``: about how many records there are, if known. ``consumer_arn``: the consumer whose
    subscription gives them, if it may be had; rows do not depend on it.
    """
    client = StreamClient(address)
    check = RetentionCheck(client, options.fail_on_data_loss)
    budget = _budget(address, wanted.shard_id, options.pace)

    def poll(position: Position, inclusive: bool = True) -> ShardCursor:
        return ShardCursor(client, budget, wanted.shard_id, position, inclusive=inclusive)

    with ExitStack() as ending:

        def subscribe(position: Position) -> SubscribedCursor:
            assert consumer_arn is not None
            is_paced = options.pace.calls_per_second > 0
            turn = _turn(address, wanted.shard_id, consumer_arn) if is_paced else Turn(None)
            cursor = SubscribedCursor(
                client, turn, consumer_arn, wanted.shard_id, position, end=wanted.end, poll=poll
            )
            ending.callback(cursor.stop)  # before the pages are closed: one may be waited for
            return cursor

        open_cursor = poll if consumer_arn is None else subscribe
        most = options.max_records_per_fetch
        pages = read_range(open_cursor, wanted, check, most, expected)
        for records in ending.enter_context(closing(pages)):
            rows = to_arrow(
                records,
                stream=address.name,
                shard_id=wanted.shard_id,
                deaggregate=options.deaggregate,
            )
            # A record that is handed on as stored cannot begin behind its first user records.
            done = user_records_done(records[0], wanted.start)
            yield rows.slice(done) if options.deaggregate else rows


def before(batches: Iterator[pa.RecordBatch], ms: int) -> Iterator[pa.RecordBatch]:
    """The rows before the first one that arrived at ``ms`` (epoch milliseconds) or later."""
    instant = pa.scalar(ms, pa.timestamp("ms", tz="UTC"))
    for batch in batches:
        is_late = pc.greater_equal(batch.column("approximateArrivalTimestamp"), instant)
        first: int = pc.index(is_late, True).as_py()
        if first >= 0:
            yield batch.slice(0, first)
            return
        yield batch
