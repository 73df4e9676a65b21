"""Plans a batch read: lists the shards, and finds a fixed end for each open shard."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sparkinesis.errors import ShardNotFoundError
from sparkinesis.source.batch.shard_reads import (
    BatchPartition,
    PushedFilters,
    ShardRead,
    open_ended,
    plan_shard_reads,
    unlisted,
)
from sparkinesis.source.offsets import Positions, ranges
from sparkinesis.source.options.read_options import BatchReadOptions, ReadOptions, StreamReadOptions
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.stream_planner import STARTUP_RETRY, StreamPlanner
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, ShardRange
from sparkinesis.stream.shard import Lineage

_log = logging.getLogger(__name__)


def plan_read(options: BatchReadOptions, filters: PushedFilters) -> list[BatchPartition]:
    """Return the tasks of a batch read, with fixed ends, sorted by stream and shard.

    Raises `DataLossError` if a start has expired, and errors of the service.
    """
    streams = sorted(name for name in options.reading.streams if filters.has_stream(name))
    if not streams:
        return []
    with ThreadPoolExecutor(len(streams)) as pool:
        planned = pool.map(lambda stream: _plan_stream(options, filters, stream), streams)
        return [task for tasks in planned for task in tasks]


def _plan_stream(
    options: BatchReadOptions, filters: PushedFilters, stream: str
) -> list[BatchPartition]:
    reading = options.reading
    client = StreamClient(reading.streams[stream])
    shards, now_ms = client.list_shards_created(STARTUP_RETRY)
    lineage = Lineage.of(shards)
    start, end = options.start.get(stream, {}), options.end.get(stream, {})
    for name, boundary in (("startingPosition", start), ("endingPosition", end)):
        _check_shards(name, boundary, lineage, client, reading)
    # The service's clock is known to the second only.
    now_ms = now_ms // 1000 * 1000 + 999
    planned = plan_shard_reads(lineage, start, end, filters, now_ms)
    tasks = [
        BatchPartition(stream, shard_read.range(shard_read.end), shard_read.before_ms)
        for shard_read in planned
        if shard_read.end is not LATEST
    ]
    for (before_ms, is_initial), members in open_ended(planned).items():
        until_ms = now_ms if before_ms is None else min(now_ms, before_ms - 1)
        fails = reading.fail_on_data_loss and not is_initial
        to_plan = StreamReadOptions(replace(reading, fail_on_data_loss=fails), min_fetch_period=0.0)
        planner = StreamPlanner(client, to_plan, is_batch_read=True)
        planner.stop_at(until_ms)
        # The planner may also return children that appeared since the shards were listed.
        tasks += [
            BatchPartition(stream, found)
            for found in _with_ends(members, planner)
            if filters.has_shard(found.shard_id)
        ]
    return sorted(tasks, key=lambda task: task.shard_range.shard_id)


def _with_ends(members: list[ShardRead], planner: StreamPlanner) -> list[ShardRange]:
    """Return the ranges up to the planner's last batch, one for each shard with records."""
    found: dict[str, ShardRange] = {}
    initial = {shard_read.shard_id: shard_read.is_initial for shard_read in members}
    at: Positions = {shard_read.shard_id: shard_read.start for shard_read in members}
    while (following := _next_end(planner, at)) is not at:
        for more in ranges(at, following):
            shard = more.shard_id
            begun = found.get(shard, more)
            found[shard] = ShardRange(
                shard, begun.start, more.end, initial.get(shard, True), begun.first
            )
        at = following
    return list(found.values())


def _next_end(planner: StreamPlanner, start: Positions) -> Positions:
    """Return the end of the planner's next batch; ``start`` itself if no record follows."""
    return plan_batch({"": planner}, {"": start}, drift=math.inf).end[""]


def _check_shards(
    name: str,
    boundary: Positions,
    lineage: Lineage,
    client: StreamClient,
    reading: ReadOptions,
) -> None:
    gone = unlisted(boundary, lineage)
    if not gone:
        return
    text = (
        f"The option {name} names shard {', '.join(gone)}, which {client.address} does not have. "
        "The name may be mistyped, or the shard is of another stream, or its records were older "
        "than the stream's retention period and are lost."
    )
    if reading.fail_on_data_loss:
        raise ShardNotFoundError(
            f"{text} Leave the shard out, or set the option failOnDataLoss to false to read the "
            "other shards."
        )
    _log.warning("%s Reading the other shards: failOnDataLoss=false.", text)
