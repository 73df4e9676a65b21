"""Plans a batch read: which part of each shard is read, with a fixed end for each open shard.

Shards of all generations are read in parallel. A position means that all records up to it are done:
a read begins after its start and ends with its end, so the end of one read is the start of the
next.

The position of a shard that a map does not list follows from the listed shards, as in an offset of
a streaming query. An ancestor of a listed shard is done (in a start) or is read whole (in an end);
a descendant is read whole (in a start) or not at all (in an end). A shard without a listed relative
is read from its oldest record, or up to the present.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sparkinesis.errors import ShardNotFoundError
from sparkinesis.source.offsets import ANY_SHARD, Positions, ranges
from sparkinesis.source.options.checked_options import (
    BatchReadOptions,
    PushedFilters,
    ReadOptions,
    StreamReadOptions,
)
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.stream_planner import STARTUP_RETRY, StreamPlanner
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.source.reading.read_task import BatchPartition
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    Sentinel,
    ShardRange,
    sequence_order,
)
from sparkinesis.stream.shard import Lineage

_log = logging.getLogger(__name__)


def plan_read(options: BatchReadOptions) -> list[BatchPartition]:
    """Return the tasks of a batch read, with fixed ends, sorted by stream and shard.

    Raises `DataLossError` if a start has expired, and errors of the service.
    """
    streams = sorted(name for name in options.reading.streams if options.filters.has_stream(name))
    if not streams:
        return []
    with ThreadPoolExecutor(len(streams)) as pool:
        planned = pool.map(lambda stream: _plan_stream(options, stream), streams)
        return [task for tasks in planned for task in tasks]


def _plan_stream(options: BatchReadOptions, stream: str) -> list[BatchPartition]:
    reading, filters = options.reading, options.filters
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
        planner = StreamPlanner(StreamTools(client, to_plan, is_batch_read=True))
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


Start: TypeAlias = AfterRecord | AtTimestamp | Literal[Sentinel.TRIM_HORIZON]
End: TypeAlias = AfterRecord | Literal[Sentinel.SHARD_END, Sentinel.LATEST]


@dataclass(frozen=True, slots=True)
class ShardRead:
    """The part of one shard to read: the records after ``start`` up to ``end``."""

    shard_id: str
    start: Start
    end: End
    """LATEST: the last record at present, which the planner has yet to find."""
    before_ms: int | None = None
    """The read stops at the first record that arrived at this epoch millisecond or later."""
    is_initial: bool = False
    """True if the read starts at the oldest record kept, so the start cannot have expired."""

    def range(self, end: AfterRecord | Literal[Sentinel.SHARD_END]) -> ShardRange:
        """Return the range that ends at ``end``."""
        return ShardRange(self.shard_id, self.start, end, self.is_initial)


def unlisted(boundary: Positions, lineage: Lineage) -> tuple[str, ...]:
    """Return the shards of ``boundary`` that the service does not list, or no longer lists."""
    return tuple(
        sorted(
            shard
            for shard, position in boundary.items()
            if shard not in lineage.shards and shard != ANY_SHARD and position is not SHARD_END
        )
    )


def plan_shard_reads(
    lineage: Lineage, start: Positions, end: Positions, filters: PushedFilters, now_ms: int
) -> list[ShardRead]:
    """Return the reads of a stream's shards, sorted by shard, without those known to be empty.

    ``now_ms``: no record has arrived after this epoch millisecond.
    """
    starts = _complete(start, lineage, before=SHARD_END, behind=TRIM_HORIZON, other=TRIM_HORIZON)
    ends = _complete(end, lineage, before=SHARD_END, behind=TRIM_HORIZON, other=LATEST)
    found: list[ShardRead] = []
    for shard_id in sorted(lineage.shards):
        since, until = starts[shard_id], ends[shard_id]
        if since is LATEST or since is SHARD_END or until is TRIM_HORIZON:
            continue
        assert not isinstance(since, FromApplication), "no batch read begins there"
        shard_read = ShardRead(
            shard_id,
            _later(since, filters.start_ms),
            _end(until, lineage.shards[shard_id].is_open),
            _earlier(until, filters.before_ms),
            is_initial=shard_id not in start or since is TRIM_HORIZON,
        )
        if filters.has_shard(shard_id) and not _is_empty(shard_read, now_ms):
            found.append(shard_read)
    return found


def _complete(
    boundary: Positions, lineage: Lineage, *, before: Position, behind: Position, other: Position
) -> dict[str, Position]:
    """Return a position for every shard that the service lists."""
    listed = set(boundary) - {ANY_SHARD}
    ancestors = lineage.ancestors(listed)
    # LATEST is the present of a shard and of its descendants.
    descendants = lineage.descendants(s for s in listed if boundary[s] is not LATEST)

    def position(shard: str) -> Position:
        if shard in boundary:
            return boundary[shard]
        if ANY_SHARD in boundary:
            return boundary[ANY_SHARD]
        if shard in ancestors:
            return before
        return behind if shard in descendants else other

    return {shard: position(shard) for shard in lineage.shards}


def _later(start: Start, start_ms: int | None) -> Start:
    """Return the later of ``start`` and an instant; a sequence number stays as it is."""
    if start_ms is None or isinstance(start, AfterRecord):
        return start
    return AtTimestamp(max(start_ms, start.ms) if isinstance(start, AtTimestamp) else start_ms)


def _end(end: Position, is_open: bool) -> End:
    if isinstance(end, AfterRecord):
        return end
    # A closed shard is read to its end. An open shard has no end yet.
    return LATEST if is_open else SHARD_END


def _earlier(end: Position, before_ms: int | None) -> int | None:
    if not isinstance(end, AtTimestamp):
        return before_ms
    return end.ms if before_ms is None else min(end.ms, before_ms)


def _is_empty(shard_read: ShardRead, now_ms: int) -> bool:
    """Return True if the start is known to lie after the end."""
    start, end = shard_read.start, shard_read.end
    if isinstance(start, AtTimestamp):
        return start.ms > now_ms or (
            shard_read.before_ms is not None and start.ms >= shard_read.before_ms
        )
    if isinstance(start, AfterRecord) and isinstance(end, AfterRecord):
        begins, ends = sequence_order(start.sequence_number), sequence_order(end.sequence_number)
        return ends < begins or (
            ends == begins and (end.is_before or start.sub_sequence_number is None)
        )
    return shard_read.before_ms == 0


def open_ended(
    planned: Iterable[ShardRead],
) -> dict[tuple[int | None, bool], list[ShardRead]]:
    """Return the reads without a known end, by ``before_ms`` and ``is_initial``."""
    groups: dict[tuple[int | None, bool], list[ShardRead]] = {}
    for shard_read in planned:
        if shard_read.end is LATEST:
            groups.setdefault((shard_read.before_ms, shard_read.is_initial), []).append(shard_read)
    return groups
