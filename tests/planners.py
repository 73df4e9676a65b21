"""Planners of one stream, without a query around them."""

from __future__ import annotations

from sparkinesis.source.options.option_table import Options
from sparkinesis.source.options.read_options import stream_read_options
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.timing import MACHINE, Timing


def stream_planner(
    client: StreamClient,
    *,
    is_batch_read: bool = False,
    timing: Timing = MACHINE,
    **options: str,
) -> StreamPlanner:
    """A planner that pauses and limits its calls only where ``options`` say so."""
    given = {
        "streamName": client.address.name,
        "minFetchPeriod": "0s",
        "shardCallsPerSecond": "unlimited",
        "shardBytesPerSecond": "unlimited",
        **options,
    }
    return StreamPlanner(
        client, stream_read_options(Options(given)), is_batch_read=is_batch_read, timing=timing
    )
