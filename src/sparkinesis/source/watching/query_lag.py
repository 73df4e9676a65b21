"""The lag of a query as a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkinesis.public import public
from sparkinesis.source.watching.progress import SourceReading, kinesis_sources
from sparkinesis.status import StreamLag

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@public
def lag(query: StreamingQuery) -> dict[str, StreamLag]:
    """Return how far a query is behind the tip of each stream that it reads, by stream.

    It is the lag at the end of the batch that was planned last, as ``query.lastProgress`` has it:
    no call to AWS. While a batch runs, its rows grow older than that: the metric
    ``query.progress.age`` has the time since the progress. A stream is missing before the first
    look at its shards, and a query without Kinesis sources has none.
    """
    progress = query.lastProgress
    return lags_of(kinesis_sources(progress.sources)) if progress is not None else {}


def lags_of(sources: Iterable[SourceReading]) -> dict[str, StreamLag]:
    """Return the lags by stream. A stream that several sources read has the lag of the worst."""
    found: dict[str, StreamLag] = {}
    for source in sources:
        for stream, report in source.reports.items():
            told = report.millis_behind_latest
            if told is not None and (stream not in found or told.max > found[stream].max_ms):
                found[stream] = StreamLag(told.max, told.mean, told.shards)
    return found
