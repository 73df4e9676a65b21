"""A plan's report of a stream in the query's progress: lag, data loss, calls, sizes.

Spark gives Python sources no metrics of their own. The progress of each batch holds, as
``sources[].latestOffset``, what ``reportLatestOffset`` returns: these reports, by stream. Nothing
of them is stored in a checkpoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import msgspec

WORST = 20
"""The most shards whose lags are reported one by one: those with the largest lags."""


class LagReport(msgspec.Struct, frozen=True):
    """The lag behind the tip of a stream's shards, in milliseconds, at the end of a plan."""

    max: int
    mean: int
    shards: dict[str, int] = {}
    """The lags of at most `WORST` shards, by shard id."""


class SampleReport(msgspec.Struct, frozen=True):
    """The records that a plan has in hand, of shards from which the batch reads."""

    rows: int
    bytes: int
    """Their bytes of data, as the stream stores them."""


class StreamReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The last plan's report of one stream."""

    millis_behind_latest: LagReport | None = None
    """None before the first probe of a shard."""
    data_losses: int = 0
    """Times since the query's start that its plans found records gone that it had not read."""
    plan_millis: int | None = None
    """The time that the plan took, without pauses between plans."""
    probes: int = 0
    """Attempts of GetRecords that the query's plans have made since its start."""
    throttled: int = 0
    """Attempts of calls of its plans that Kinesis has throttled since its start."""
    ranges: int = 0
    """The shards of the stream from which the batch reads: each is a range of records."""
    filled: float | None = None
    """The share of ``maxRecordsPerTrigger`` or ``maxBytesPerTrigger`` that the batch fills, all
    streams of the source together; None without such a limit."""
    sample: SampleReport | None = None
    """None if the plan has found no records."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as it stands in the progress."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def lag_report(lags_ms: Mapping[str, int]) -> LagReport | None:
    """Return the report of the lags of shards by shard id; None without any."""
    if not lags_ms:
        return None
    # Most of thousands of shards have none: comparing tuples and ids needs no call for each.
    behind = heapq.nsmallest(WORST, [(-lag, shard) for shard, lag in lags_ms.items() if lag])
    worst = {shard: -lag for lag, shard in behind}
    if len(worst) < WORST:
        rest = heapq.nsmallest(WORST - len(worst), [s for s, lag in lags_ms.items() if not lag])
        worst.update(dict.fromkeys(rest, 0))
    mean = round(sum(lags_ms.values()) / len(lags_ms))
    return LagReport(max(worst.values()), mean, dict(sorted(worst.items())))


def read_reports(found: Any) -> dict[str, StreamReport] | None:
    """Return the reports by stream of a progress' ``latestOffset``, once decoded from JSON.

    Returns None for anything else, such as the latest offset of another source.
    """
    try:
        reports = msgspec.convert(found, dict[str, StreamReport])
    except msgspec.ValidationError:
        return None
    if not reports or not all(map(_is_ours, found.values())):
        return None
    return reports


def _is_ours(report: Mapping[str, Any]) -> bool:
    return "millisBehindLatest" in report or "dataLosses" in report
