"""Active users, as a Spark query: every heartbeat resets the timer of its user.

One query reads both streams, and the state is in Spark's checkpoint, by user: neither the stream of
a heartbeat nor a reshard matters. With ``skipOlderThan``, a
query that was stopped does not process old heartbeats.

Silence is counted by the heartbeats that the query has read: a user is silent once others have
arrived `silence` after the user's last one. So nobody is evicted because the query was stopped, or
because a batch takes long. The first batch after a jump by ``skipOlderThan`` covers a silence, and
so holds a heartbeat of each present user: with ``maxRecordsPerTrigger``, leave room for that many.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from examples.active_users.board import Board, Running
from examples.flights.query import start_patiently

if TYPE_CHECKING:
    import pandas as pd

STATE = "arrived LONG"
"""A user's last heartbeat: the time of its arrival at Kinesis."""
OUTPUT = "user STRING, active BOOLEAN, arrivals ARRAY<LONG>, streams ARRAY<STRING>, planned LONG"
"""``arrivals``: arrival times of the heartbeats in this batch, or of an evicted user's last one;
``planned``: the time at which Spark planned the batch; all in epoch milliseconds. ``streams``: the
streams of these heartbeats, or none."""

AMID_A_BATCH = ("Processing new data", "No new data but cleaning up state")
"""What Spark's status of a query says while a batch runs. On a busy machine, Spark plans the next
batch as soon as one ends, without a pause between them."""


def active_users(records: DataFrame, silence_ms: int) -> DataFrame:
    """Return a row for each user with heartbeats in a batch, and one for each evicted user.

    The watermark follows the newest heartbeat by a quarter of the silence. Batches advance in time
    together, so this need only cover the disorder of arrival times, which AWS does not bound.
    """
    return (
        records.select("stream", "partitionKey", "approximateArrivalTimestamp")
        .withWatermark("approximateArrivalTimestamp", f"{silence_ms // 4} milliseconds")
        .groupBy("partitionKey")
        .applyInPandasWithState(
            functools.partial(update_user, silence_ms=silence_ms),
            OUTPUT,
            STATE,
            "update",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def update_user(
    key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState, *, silence_ms: int
) -> Iterator[pd.DataFrame]:
    """Update a user's state by new heartbeats, or evict the user when the timer fires.

    The timer fires once the watermark has passed the silence after the user's last heartbeat.
    """
    now = state.getCurrentProcessingTimeMs()
    if state.hasTimedOut:
        (arrived,) = state.get
        state.remove()
        yield _row(key[0], False, [arrived], [], now)
        return
    arrivals: list[int] = []
    streams: list[str] = []
    for batch in batches:
        times = batch["approximateArrivalTimestamp"].astype("datetime64[ms]")
        arrivals.extend(map(int, times.astype("int64")))
        streams.extend(batch["stream"])
    last = max(*arrivals, *(state.get if state.exists else ()), 0)
    state.update((last,))
    state.setTimeoutTimestamp(last + silence_ms)
    yield _row(key[0], True, arrivals, streams, now)


def _row(
    user: str, active: bool, arrivals: list[int], streams: list[str], planned: int
) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - only Spark workers need it

    row = {
        "user": user,
        "active": active,
        "arrivals": arrivals,
        "streams": streams,
        "planned": planned,
    }
    return pd.DataFrame({name: [value] for name, value in row.items()})


def note_on(board: Board, row: Row) -> None:
    """Write a row of `active_users` on the board."""
    if not row.active:
        board.evict(row.user, row.arrivals[0] / 1000)
        return
    for arrived, stream in zip(row.arrivals, row.streams, strict=True):
        # Spark runs a batch that it planned before a stop as it was planned.
        board.hear(row.user, arrived / 1000, stream, row.planned / 1000)


def start_query(
    spark: SparkSession,
    checkpoint: Path,
    *,
    streams: Sequence[str],
    region: str,
    endpoint: str,
    minute: float,
    board: Board,
) -> Running:
    """Start the query. The query keeps ``board``."""
    silence_ms = round(2 * minute * 1000)
    records = (
        spark.readStream.format("kinesis")
        .option("streamName", ",".join(streams))
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

    writer = (
        active_users(records, silence_ms)
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{round(minute * 500)} milliseconds")
    )
    query = start_patiently(writer.start)

    def check() -> None:
        if not query.isActive:
            raise RuntimeError(f"The query has failed: {query.exception()}")

    def stop() -> None:
        # Stop between two batches if possible: Spark would run an unfinished batch again.
        until = time.monotonic() + 5 * minute
        while query.status["message"] in AMID_A_BATCH and time.monotonic() < until:
            time.sleep(0.01)
        check()
        query.stop()

    return Running(check, stop)
