"""Deliberate bugs in the source, each as a patch of one name: what the simulation has to find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkinesis.source.datasource import KinesisStreamReader
from sparkinesis.source.options.allowance import Allowance
from sparkinesis.source.planning import shard_prober as prober
from sparkinesis.source.planning import stream_planner
from sparkinesis.source.planning.batch_end import Finished, Records
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.calls import client
from sparkinesis.stream.position import SHARD_END, AfterRecord, AtTimestamp
from sparkinesis.stream.reading import range as polling
from sparkinesis.stream.reading import retention
from sparkinesis.stream.reading.budget import CallBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.shard import Lineage
from tests.simulation.patches import always, begin_anew
from tests.simulation.subject import Bug, instead


def _one_more(cut_at_end: Any) -> Any:
    def further(records: Any, end: Any) -> Any:
        within, over, seen = cut_at_end(records, end)
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


def _not_when_tolerant(report: Any) -> Any:
    def reported(self: Any, *text: Any) -> None:
        if self.fail_on_data_loss:
            report(self, *text)

    return reported


BUGS: Mapping[str, Bug] = {
    "a batch reads one record too far": instead(
        polling, "cut_at_end", _one_more, "each_row_arrives_once", rough=1
    ),
    "a batch begins AT its start": instead(
        RetentionCheck, "check_start", _at, "each_row_arrives_once", rough=0
    ),
    "a batch begins by arrival time": instead(
        ShardCursor, "__init__", _by_arrival, "each_row_arrives_once", rough=0
    ),
    "children are planned with their parents' last range": instead(
        stream_planner, "plan", _children_at_once, "parents_come_first", rough=4
    ),
    "a merge waits for one parent only": instead(
        Lineage,
        "listed_parents",
        lambda _: lambda self, shard_id: (),
        "parents_come_first",
        rough=0,
    ),
    "a replay is planned anew": instead(
        KinesisStreamReader, "partitions", _planned_anew, "batches_are_the_same_each_time", rough=1
    ),
    "a stale ListShards is trusted": instead(
        StreamPlanner,
        "_list_until_complete",
        lambda _: lambda self, lineage, left_out: lineage,
        "loss_is_reported",
        rough=0,
    ),
    "an empty page is the tip": instead(
        prober.ShardProber, "_open", _no_empty_pages, "everything_arrives", rough=3
    ),
    "a gap in retention is skipped silently": instead(
        retention, "may_have_lost", lambda _: lambda *of: False, "everything_arrives", rough=16
    ),
    "a replay does not check for the records of its plan": instead(
        RetentionCheck, "check_planned_first", always(True), "everything_arrives", rough=23
    ),
    "the present retention period is trusted": instead(
        retention, "is_kept", always(False), "everything_arrives", rough=35
    ),
    "a stream created anew is taken for the old one": instead(
        retention, "is_of_another_stream", always(False), "everything_arrives", rough=71
    ),
    "failOnDataLoss=false does not log its losses": instead(
        RetentionCheck, "_report", _not_when_tolerant, "everything_arrives", rough=4
    ),
    "an expired iterator starts over": instead(
        ShardCursor, "fetch", begin_anew, "batches_are_the_same_each_time", rough=33
    ),
    "the local clock is taken for the service's": instead(
        client,
        "service_time",
        lambda _: lambda headers, local_ms, *_: local_ms,
        "everything_arrives",
        rough=4,
    ),
    "each shard may use the whole limit": instead(
        Allowance, "share", lambda _: lambda self, part: self, "limits_hold", rough=9
    ),
    "the rest of a batch is not planned again": instead(
        prober.ShardProber, "_cut", _cursor_kept, "everything_arrives", rough=2
    ),
    "old records are skipped while the query runs": instead(
        StreamPlanner, "next_offset", _skip_again, "everything_arrives", rough=1
    ),
    "available now has no end": instead(
        StreamPlanner,
        "stop_at",
        lambda _: lambda self, ms: None,
        "available_now_ends_where_it_should",
        rough=24,
    ),
    "an idle stream makes batches": instead(
        stream_planner,
        "is_worth_storing",
        lambda _: lambda start, end: True,
        "idle_streams_make_no_batches",
        rough=0,
    ),
    "calls are not spaced": instead(
        CallBudget, "__enter__", lambda _: lambda self: None, "calls_stay_within_budgets", rough=1
    ),
}
