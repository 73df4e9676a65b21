"""Reads one range of a shard in a Spark task, by GetRecords or by a subscription."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

from sparkinesis.source.options.checked_options import ReadOptions
from sparkinesis.source.reading.subscribed_cursor import (
    RangeSubscription,
    SubscribedCursor,
    SubscribeLimiter,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.subscription import OPERATION
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import Position, ShardRange
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.machine_budget import machine_budget_state
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor


@functools.lru_cache(maxsize=4096)
def _budget(address: StreamAddress, shard_id: str, pace: Pace) -> ShardBudget:
    """Return a shard's budget, which all of Spark's Python workers on this machine share."""
    return ShardBudget(
        pace, new_state=lambda operation: machine_budget_state(address, shard_id, (operation, pace))
    )


@functools.lru_cache(maxsize=4096)
def _limiter(address: StreamAddress, shard_id: str, consumer_arn: str) -> SubscribeLimiter:
    """Return the machine's limiter of a consumer's subscriptions to a shard."""
    return SubscribeLimiter(machine_budget_state(address, shard_id, (OPERATION, consumer_arn)))


def read_records(
    options: ReadOptions,
    address: StreamAddress,
    shard_range: ShardRange,
    expected: int | None = None,
    consumer_arn: str | None = None,
) -> Iterator[Sequence[Record]]:
    """Yield the records of ``shard_range``, page by page. Runs on an executor.

    ``expected``: the approximate number of records, if known. ``consumer_arn``: the consumer to
    subscribe as, where a subscription is possible; None reads by GetRecords. Neither changes the
    records. Raises `DataLossError` and service errors.
    """
    keep_freed_memory()
    client = StreamClient(address)
    check = RetentionCheck(client, options.fail_on_data_loss)
    budget = _budget(address, shard_range.shard_id, options.pace)

    def poll(position: Position, inclusive: bool = True) -> ShardCursor:
        return ShardCursor(client, budget, shard_range.shard_id, position, inclusive=inclusive)

    with ExitStack() as ending:

        def subscribe(position: Position) -> SubscribedCursor:
            assert consumer_arn is not None
            limiter = SubscribeLimiter(None)
            if options.pace.calls_per_second > 0:
                limiter = _limiter(address, shard_range.shard_id, consumer_arn)
            subscription = RangeSubscription(client, limiter, consumer_arn, shard_range.shard_id)
            # Runs before the pages close, as a thread may wait for an event.
            ending.callback(subscription.stop)
            return SubscribedCursor(subscription, position, end=shard_range.end, poll=poll)

        open_cursor = poll if consumer_arn is None else subscribe
        most = options.max_records_per_fetch
        pages = read_range(open_cursor, shard_range, check, most, expected)
        # `yield from` would close the pages first, which may wait for an event of the subscription.
        for records in ending.enter_context(closing(pages)):  # noqa: UP028
            yield records


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)."""

KEPT = 64 << 20
"""The bytes that may stay free at the end of a heap."""

LARGEST = 32 << 20
"""The largest block that a heap holds; glibc's own limit for a threshold that adapts itself."""

_USERS_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user tunes glibc."""


@functools.cache
def keep_freed_memory() -> bool:
    """Keep up to `KEPT` bytes of freed memory in this process; return True if that is possible.

    Only glibc can. The user's own settings of glibc stay as they are.
    """
    if any(name in os.environ for name in _USERS_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST))
