"""Deliberate bugs in the source, each as a patch of one name: what the simulation has to find."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparkinesis.source.datasource import KinesisStreamReader
from sparkinesis.source.planning import aligned_batch, batch_end
from sparkinesis.source.planning.batch_end import Records
from sparkinesis.source.planning.probing import shard_front
from sparkinesis.source.planning.probing.records_in_hand import RecordsInHand, Scale
from sparkinesis.source.planning.probing.shard_prober import ShardProber
from sparkinesis.source.planning.shard_listing import ShardListing
from sparkinesis.source.planning.stream_plan import StreamPlan
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.calls import client
from sparkinesis.stream.position import END_OF_TIME_MS, AfterRecord, AtTimestamp
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


def _children_at_once(finish: Any) -> Any:
    def early(self: Any, plan: Any, start: Any, choice: Any) -> Any:
        end = finish(self, plan, start, choice)
        if end is start:
            return end
        added = {}
        for shard, looked in plan.active.items():
            if looked.front.is_ended and isinstance(end.get(shard), AfterRecord):
                for child in self._kept.listing.lineage.children_of_ended(shard) or ():
                    found = plan.children[child].find_end(END_OF_TIME_MS).end.finding
                    if isinstance(found, Records):
                        added[child] = AfterRecord(found.end)
        return {**end, **added}

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


def _skip_again(begin: Any) -> Any:
    def again(self: Any, *of: Any) -> Any:
        age = self._skip_older_than
        end = begin(self, *of)
        self._skip_older_than = age
        return end

    return again


def _rest_forgotten(after: Any) -> Any:
    def forgotten(self: Any, count: int) -> Any:
        rest = after(self, count)
        return RecordsInHand() if count else rest

    return forgotten


def _weighed_less(weigh: Any) -> Any:
    return lambda *of, **how: [weight / 4 for weight in weigh(*of, **how)]


def _by_shares(choose: Any) -> Any:
    def apart(surveys: Any, bounds: Any, previous: Any = None) -> Any:
        return choose(surveys, replace(bounds, drift=math.inf), previous)

    return apart


def _asked_when_answered(get_records: Any) -> Any:
    def late(self: Any, *of: Any, **how: Any) -> Any:
        fetched = get_records(self, *of, **how)
        return replace(fetched, asked_ms=fetched.asked_ms + 5000)

    return late


def _not_when_tolerant(report: Any) -> Any:
    def reported(self: Any, *text: Any) -> None:
        if self.fail_on_data_loss:
            report(self, *text)

    return reported


BUGS: Mapping[str, Bug] = {
    "a batch reads one record too far": instead(
        polling, "cut_at_end", _one_more, "each_row_arrives_once", rough=0
    ),
    "a batch begins AT its start": instead(
        RetentionCheck, "check_start", _at, "each_row_arrives_once", rough=0
    ),
    "a batch begins by arrival time": instead(
        ShardCursor, "__init__", _by_arrival, "each_row_arrives_once", rough=0
    ),
    "children are planned with their parents' last range": instead(
        StreamPlanner, "finish", _children_at_once, "parents_come_first", rough=4
    ),
    "children enter before other shards have reached the reshard": instead(
        StreamPlan, "_successions", lambda _: lambda self: (), "batches_advance_together", rough=12
    ),
    "the end of a shard is expected with its last records": instead(
        ShardProber, "meet_end", always(None), "batches_advance_together", rough=12
    ),
    "the limit is met by shares of shards": instead(
        aligned_batch, "choose", _by_shares, "batches_advance_together", rough=2
    ),
    "the newest look decides how far all shards go": instead(
        client.StreamClient,
        "get_records",
        _asked_when_answered,
        "batches_advance_together",
        rough=28,
    ),
    "a silence is stored as longer than it is known to be": instead(
        shard_front, "CLOCK_MARGIN_MS", lambda _: -30_000, "everything_arrives", rough=0
    ),
    "a merge waits for one parent only": instead(
        Lineage, "listed_parents", always(()), "parents_come_first", rough=0
    ),
    "a replay is planned anew": instead(
        KinesisStreamReader, "partitions", _planned_anew, "batches_are_the_same_each_time", rough=1
    ),
    "a stale ListShards is trusted": instead(
        ShardListing, "renew_until_complete", always(None), "loss_is_reported", rough=0
    ),
    "an empty page is the tip": instead(
        shard_front.ShardFront, "open", _no_empty_pages, "everything_arrives", rough=3
    ),
    "a gap in retention is skipped silently": instead(
        retention, "may_have_lost", always(False), "everything_arrives", rough=16
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
        rough=0,
    ),
    "a batch may hold four times the limit": instead(
        Scale, "weigh", _weighed_less, "limits_hold", rough=2
    ),
    "the rest of a batch is not planned again": instead(
        RecordsInHand, "after", _rest_forgotten, "everything_arrives", rough=0
    ),
    "old records are skipped while the query runs": instead(
        StreamPlanner, "begin", _skip_again, "everything_arrives", rough=1
    ),
    "available now has no end": instead(
        StreamPlanner, "stop_at", always(None), "available_now_ends_where_it_should", rough=24
    ),
    "an idle stream makes batches": instead(
        batch_end, "FRESH_FOR_MS", lambda _: -1, "idle_streams_make_no_batches", rough=0
    ),
    "calls are not spaced": instead(
        CallBudget, "__enter__", always(None), "calls_stay_within_budgets", rough=1
    ),
}
