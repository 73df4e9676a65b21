"""Deliberate bugs in the source, each as a patch of one name: what the simulation has to find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkinesis.source import prober, stream_planner
from sparkinesis.source.admission import Allowance
from sparkinesis.source.datasource import KinesisStreamReader
from sparkinesis.source.plan import Finished, Records
from sparkinesis.source.stream_planner import StreamPlanner
from sparkinesis.stream import client, polling, retention
from sparkinesis.stream.budget import CallBudget
from sparkinesis.stream.cursor import ShardCursor
from sparkinesis.stream.position import SHARD_END, AfterRecord, AtTimestamp
from sparkinesis.stream.retention import RetentionCheck
from sparkinesis.stream.shard import Lineage
from tests.simulation.subject import Bug


def _instead(
    owner: object, name: str, caught_by: str, make: Callable[[Any], Any], rough: int | None = None
) -> Bug:
    """A bug in place of a function, or a number, which it is given."""
    return Bug(lambda: mock.patch.object(owner, name, make(getattr(owner, name))), caught_by, rough)


def _one_more(up_to: Any) -> Any:
    def further(records: Any, end: Any) -> Any:
        within, over, seen = up_to(records, end)
        return records[: len(within) + 1], over, seen

    return further


def _at(after_start: Any) -> Any:
    return lambda self, shard_id, start, fetched: fetched.page.records


def _children_at_once(plan: Any) -> Any:
    def early(start: Any, lineage: Any, findings: Any) -> Any:
        ended = {
            shard
            for shard, one in findings.items()
            if isinstance(one, Records) and not lineage.shards[shard].is_open
        }
        planned = plan(start, lineage, {**findings, **dict.fromkeys(ended, Finished())})
        end = {**planned.end, **dict.fromkeys(ended, SHARD_END)}
        return replace(planned, end=end, has_rows=planned.has_rows or bool(ended))

    return early


def _planned_anew(partitions: Any) -> Any:
    def anew(self: Any, start: Any, end: Any) -> Any:
        return partitions(self, start, self.latestOffset(start, ReadAllAvailable()))

    return anew


def _by_arrival(init: Any) -> Any:
    def by_arrival(self: Any, client: Any, budget: Any, shard: Any, at: Any, **more: Any) -> None:
        if isinstance(at, AfterRecord) and at.clear_until is not None:
            at = AtTimestamp(at.clear_until)
        init(self, client, budget, shard, at, **more)

    return by_arrival


def _begin_anew(fetch: Any) -> Any:
    """An iterator that has expired is replaced by one at the place of the very first."""

    def begin(self: Any, *limit: Any) -> Any:
        place = self._position, self._inclusive
        fetched = fetch(self, *limit)
        self._position, self._inclusive = place
        return fetched

    return begin


def _no_empty_pages(open_cursor: Any) -> Any:
    def opened(self: Any, *at: Any, **how: Any) -> Any:
        cursor = open_cursor(self, *at, **how)
        fetch = cursor.fetch

        def believed(limit: int) -> Any:
            fetched = fetch(limit)
            if fetched.page.records:
                return fetched
            page = msgspec.structs.replace(fetched.page, millis_behind_latest=0)
            return replace(fetched, page=page)

        cursor.fetch = believed
        return cursor

    return opened


def _skip_again(next_offset: Any) -> Any:
    def again(self: Any, *of: Any) -> Any:
        age = self._skip_older_than
        end = next_offset(self, *of)
        self._skip_older_than = age
        return end

    return again


def _cursor_kept(cut: Any) -> Any:
    def keep(self: Any, *of: Any) -> Any:
        cursor = self._cursor
        look = cut(self, *of)
        self._cursor = cursor
        return look

    return keep


BUGS: Mapping[str, Bug] = {
    "a batch reads one record too far": _instead(
        polling, "up_to", "each_row_arrives_once", _one_more, rough=1
    ),
    "a batch begins AT its start": _instead(
        RetentionCheck, "after_start", "each_row_arrives_once", _at, rough=0
    ),
    "a batch begins by arrival time": _instead(
        ShardCursor, "__init__", "each_row_arrives_once", _by_arrival, rough=0
    ),
    "children are planned with their parents' last range": _instead(
        stream_planner, "plan", "parents_come_first", _children_at_once, rough=4
    ),
    "a merge waits for one parent only": _instead(
        Lineage,
        "listed_parents",
        "parents_come_first",
        lambda _: lambda self, shard_id: (),
        rough=10,
    ),
    "a replay is planned anew": _instead(
        KinesisStreamReader, "partitions", "batches_are_the_same_each_time", _planned_anew, rough=1
    ),
    "a stale ListShards is believed": _instead(
        StreamPlanner,
        "_caught_up",
        "loss_is_told",
        lambda _: lambda self, lineage, left_out: lineage,
        rough=0,
    ),
    "an empty page is the tip": _instead(
        prober.ShardProber, "_open", "everything_arrives", _no_empty_pages, rough=3
    ),
    "a gap in retention is skipped silently": _instead(
        retention, "may_have_lost", "everything_arrives", lambda _: lambda *of: False, rough=16
    ),
    "an expired iterator begins anew": _instead(
        ShardCursor, "fetch", "batches_are_the_same_each_time", _begin_anew, rough=33
    ),
    "the local clock is the service's": _instead(
        client,
        "service_time",
        "everything_arrives",
        lambda _: lambda headers, local_ms: local_ms,
        rough=14,
    ),
    "each shard is allowed all": _instead(
        Allowance, "share", "limits_hold", lambda _: lambda self, part: self, rough=50
    ),
    "what is left for the next batch is not gone back to": _instead(
        prober.ShardProber, "_cut", "everything_arrives", _cursor_kept, rough=2
    ),
    "what is old is skipped while the query runs": _instead(
        StreamPlanner, "next_offset", "everything_arrives", _skip_again, rough=1
    ),
    "available now has no end": _instead(
        StreamPlanner,
        "stop_at",
        "available_now_ends_where_it_should",
        lambda _: lambda self, ms: None,
        rough=24,
    ),
    "silence makes batches": _instead(
        stream_planner,
        "is_worth_storing",
        "idle_streams_make_no_batches",
        lambda _: lambda start, end: True,
        rough=0,
    ),
    "calls are not spaced": _instead(
        CallBudget, "__enter__", "calls_stay_within_budgets", lambda _: lambda self: None, rough=1
    ),
}
