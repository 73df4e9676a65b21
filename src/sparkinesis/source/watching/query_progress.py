"""The Kinesis sources in a query's progress, and the query's lag by them.

Pure: from Spark's values to ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sparkinesis.errors import DataLossError
from sparkinesis.public import public
from sparkinesis.source.offsets import ANY_SHARD
from sparkinesis.source.stream_report import StreamReport, read_reports
from sparkinesis.status import StreamLag
from sparkinesis.stream.position import parse_position

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OUR_ERROR = re.compile(r"\bsparkinesis\.errors\.(\w+Error)\b")


class Source(Protocol):
    """The progress of a source, as PySpark's ``SourceProgress`` has it."""

    @property
    def endOffset(self) -> Any: ...  # noqa: N802 - Spark's name
    @property
    def latestOffset(self) -> Any: ...  # noqa: N802 - Spark's name
    @property
    def numInputRows(self) -> int: ...  # noqa: N802 - Spark's name


class Operator(Protocol):
    """The progress of an operator that keeps state, as ``StateOperatorProgress`` has it."""

    @property
    def numRowsDroppedByWatermark(self) -> int: ...  # noqa: N802 - Spark's name


class SourceReading(msgspec.Struct, frozen=True):
    """One Kinesis source in a progress."""

    streams: tuple[str, ...]
    """Sorted."""
    rows: int
    reports: Mapping[str, StreamReport]
    """By stream; empty for a batch that Spark runs again after a restart: it is not planned."""

    @property
    def name(self) -> str:
        """The name of the stream, or the names of all."""
        return ",".join(self.streams)

    @property
    def plan_seconds(self) -> float | None:
        """The time of the plan; None if there was none."""
        times = [one.plan_millis for one in self.reports.values() if one.plan_millis is not None]
        return max(times) / 1000 if times else None

    @property
    def filled(self) -> float | None:
        """The share of its limit that the batch fills; None without a limit or a plan."""
        shares = [one.filled for one in self.reports.values() if one.filled is not None]
        return max(shares, default=None)

    @property
    def bytes_per_row(self) -> float | None:
        """The mean size of the rows that the plan had in hand; None if it had none."""
        samples = [one.sample for one in self.reports.values() if one.sample is not None]
        rows = sum(sample.rows for sample in samples)
        return sum(sample.bytes for sample in samples) / rows if rows else None


def kinesis_sources(sources: Iterable[Source]) -> list[SourceReading]:
    """Return the Kinesis sources of a progress; empty if the query has none."""
    found: list[SourceReading] = []
    for source in sources:
        reports = read_reports(_decoded(source.latestOffset)) or {}
        end = _decoded(source.endOffset)
        if not reports and not _is_our_offset(end):
            continue
        streams = set(reports) | set(end if _is_our_offset(end) else ())
        found.append(SourceReading(tuple(sorted(streams)), max(0, source.numInputRows), reports))
    return found


def late_rows(operators: Iterable[Operator]) -> int:
    """Return the rows that a batch's operators dropped as later than the watermark."""
    return sum(max(0, one.numRowsDroppedByWatermark) for one in operators)


def error_class(exception: str, spark_class: str | None) -> str:
    """Return the class of the error that ended a query: ours if it names one, or Spark's."""
    return our_error(exception) or spark_class or "other"


def our_error(exception: str) -> str | None:
    """Return the class of sparkinesis' error in an exception's text: a kind of data loss as that.

    None if the text names none.
    """
    found = _OUR_ERROR.search(exception)
    if found is None:
        return None
    kinds = {DataLossError.__name__, *(one.__name__ for one in DataLossError.__subclasses__())}
    return DataLossError.__name__ if found[1] in kinds else found[1]


def _decoded(offset: Any) -> Any:
    """Return an offset as JSON values. Spark gives text; None, empty or "null" without any."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _is_our_offset(offset: Any) -> bool:
    """Return True for an offset as `sparkinesis.source.offsets` writes it."""
    if not isinstance(offset, dict) or not offset:
        return False
    return all(isinstance(shards, dict) and _are_positions(shards) for shards in offset.values())


def _are_positions(shards: Mapping[str, Any]) -> bool:
    for shard, text in shards.items():
        if shard != ANY_SHARD and not shard.startswith("shardId-"):
            return False
        try:
            parse_position(text)
        except ValueError:
            return False
        break  # of thousands of shards, one shows whose offset it is
    return True


@public
def lag(query: StreamingQuery) -> dict[str, StreamLag]:
    """Return how far a query is behind the tip of each stream that it reads, by stream.

    It is the lag at the end of the batch that was planned last, as ``query.lastProgress`` has it:
    no call to AWS. While a batch runs, its rows grow older than that: the metric
    ``query.progress.age`` has the time since the progress. A stream is missing before the first
    probe of its shards, and a query without Kinesis sources has none.
    """
    progress = query.lastProgress
    return lags_of(kinesis_sources(progress.sources)) if progress is not None else {}


def lags_of(sources: Iterable[SourceReading]) -> dict[str, StreamLag]:
    """Return the lags by stream. A stream that several sources read has the lag of the worst."""
    found: dict[str, StreamLag] = {}
    for source in sources:
        for stream, report in source.reports.items():
            behind = report.millis_behind_latest
            if behind is not None and (stream not in found or behind.max > found[stream].max_ms):
                found[stream] = StreamLag(behind.max, behind.mean, behind.shards)
    return found
