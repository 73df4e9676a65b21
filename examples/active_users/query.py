"""Who is active, as a Spark query: a timer for each user, set anew by every heartbeat.

The state is in Spark's checkpoint, by user, so reshards do not concern it. ``skipOlderThan`` keeps
a query that was stopped from chewing through what nobody wants to know any more.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from examples.active_users.board import Board, Running, evicted_at

if TYPE_CHECKING:
    import pandas as pd

STATE = "arrived LONG, heard LONG"
"""Of a user's last heartbeat: when it arrived at Kinesis, and when the query heard of it."""
OUTPUT = "user STRING, active BOOLEAN, arrivals ARRAY<LONG>, planned LONG"
"""``arrivals``: of the heartbeats in this batch, or the last one of a user who is evicted;
``planned``: when Spark planned the batch. All in epoch milliseconds."""


def active_users(records: DataFrame, silence_ms: int, started_ms: int) -> DataFrame:
    """A row for each user of whom a batch has heartbeats, and one for each who is evicted."""
    update = functools.partial(update_user, silence_ms=silence_ms, started_ms=started_ms)
    return (
        records.select("partitionKey", "approximateArrivalTimestamp")
        .groupBy("partitionKey")
        .applyInPandasWithState(
            update, OUTPUT, STATE, "update", GroupStateTimeout.ProcessingTimeTimeout
        )
    )


def update_user(
    key: tuple[str],
    batches: Iterator[pd.DataFrame],
    state: GroupState,
    *,
    silence_ms: int,
    started_ms: int,
) -> Iterator[pd.DataFrame]:
    """Take up a user's heartbeats, or find out at the timer that there were none.

    While the query was stopped (it was started at ``started_ms``) nobody listened, so a timer that
    went off meanwhile is set once more.
    """
    now = state.getCurrentProcessingTimeMs()
    if state.hasTimedOut:
        arrived, heard = state.get
        due = evicted_at(heard, started_ms, silence_ms)
        if due > now:
            state.setTimeoutDuration(int(due - now))
            return
        state.remove()
        yield _row(key[0], False, [arrived], now)
        return
    arrivals = [
        int(ms)
        for batch in batches
        for ms in batch["approximateArrivalTimestamp"].astype("datetime64[ms]").astype("int64")
    ]
    state.update((max(arrivals), now))
    state.setTimeoutDuration(silence_ms)
    yield _row(key[0], True, arrivals, now)


def _row(user: str, active: bool, arrivals: list[int], planned: int) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - only where Spark runs it

    return pd.DataFrame(
        {"user": [user], "active": [active], "arrivals": [arrivals], "planned": [planned]}
    )


def note_on(board: Board, row: Row) -> None:
    """Write a row of `active_users` on the board."""
    if not row.active:
        board.evict(row.user, row.arrivals[0] / 1000)
        return
    for arrived in row.arrivals:
        # A batch that Spark had planned before it was stopped is run as it was planned.
        board.hear(row.user, arrived / 1000, row.planned / 1000)


def start_query(
    spark: SparkSession,
    checkpoint: Path,
    *,
    stream: str,
    region: str,
    endpoint: str,
    minute: float,
    board: Board,
) -> Running:
    """Start the query, which keeps ``board``."""
    silence_ms = round(2 * minute * 1000)
    records = (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("region", region)
        .option("endpoint", endpoint)
        .option("initialPosition", "trim_horizon")
        .option("skipOlderThan", f"{silence_ms} ms")
        .option("minFetchPeriod", f"{round(min(1000.0, minute * 200))} ms")
        .load()
    )

    def write(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            note_on(board, row)

    query = (
        active_users(records, silence_ms, started_ms=round(time.time() * 1000))
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{round(minute * 500)} milliseconds")
        .start()
    )

    def check() -> None:
        if not query.isActive:
            raise RuntimeError(f"The query has failed: {query.exception()}")

    def stop() -> None:
        # Between two batches if there is a pause: one that is under way would be run again.
        until = time.monotonic() + 5 * minute
        while query.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(0.01)
        check()
        query.stop()

    return Running(check, stop)
