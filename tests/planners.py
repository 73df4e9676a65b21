"""Planners of one stream without a query around them, and plans of given findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkinesis.source.offsets import Positions, start_of
from sparkinesis.source.options.checked_options import StreamReadOptions, stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.batch_end import AssembledEnd, Finding, Finished, assemble, walk
from sparkinesis.source.planning.source_planner import SourcePlanner
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import Position
from sparkinesis.stream.shard import Lineage
from sparkinesis.stream.timing import MACHINE, Timing
from tests.engine import Query


class Time:
    """The monotonic clock of a planner, which its pauses turn."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def timing(self) -> Timing:
        return Timing(clock=self, sleep=self.sleep)


def timed(running: Query, time: Time) -> Query:
    """The query with a planner of its own, which has this clock."""
    running.reader._planner = SourcePlanner(running.reader._options, time.timing)
    return running


def planner_options(stream: str, **options: str) -> StreamReadOptions:
    """Those of a planner that pauses and limits its calls only where ``options`` say so."""
    given = {
        "streamName": stream,
        "minFetchPeriod": "0s",
        "shardCallsPerSecond": "unlimited",
        "shardBytesPerSecond": "unlimited",
        **options,
    }
    return stream_read_options(Options(given))


def stream_planner(
    client: StreamClient, *, is_batch_read: bool = False, timing: Timing = MACHINE, **options: str
) -> StreamPlanner:
    given = planner_options(client.address.name, **options)
    return StreamPlanner(StreamTools(client, given, is_batch_read=is_batch_read, timing=timing))


def to_probe(
    start: Positions, lineage: Lineage, findings: Mapping[str, Finding]
) -> dict[str, Position]:
    """The shards of a batch without a finding, with the position after which to probe."""
    done = {shard for shard, found in findings.items() if isinstance(found, Finished)}
    walked = walk(start, lineage, done)
    return {
        shard: start_of(start, shard)
        for shard in walked.reached
        if shard not in findings and shard not in walked.finished
    }


def plan(start: Positions, lineage: Lineage, findings: Mapping[str, Finding]) -> AssembledEnd:
    """The plan of these findings, which are complete."""
    done = {shard for shard, found in findings.items() if isinstance(found, Finished)}
    return assemble(start, lineage, walk(start, lineage, done), findings)


def probed(
    start: Positions, lineage: Lineage, probe: Callable[[str, Position], Finding]
) -> dict[str, Finding]:
    """The findings of all shards of a batch."""
    findings: dict[str, Finding] = {}
    while shards := to_probe(start, lineage, findings):
        findings.update({shard: probe(shard, at) for shard, at in shards.items()})
    return findings


def next_end(planner: StreamPlanner, start: Positions) -> Positions:
    """The end of the next batch of a single stream; ``start`` itself if there is none."""
    return plan_batch({"": planner}, {"": start}).end[""]


def records(*sizes: int) -> list[Record]:
    """Records that hold so many zeros."""
    return [
        Record(data=bytes(size), sequence_number=f"{number}", approximate_arrival_timestamp=1.0)
        for number, size in enumerate(sizes)
    ]
