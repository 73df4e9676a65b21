"""Planted bugs in the source, each as one change of the package."""

from __future__ import annotations

from tests.simulation.subject import planted

BUGS = planted("""
a batch reads one record too far | each_row_arrives_once
    stream.reading.range:cut_at_end
    - place + (is_found
    + place + 1 + (is_found
a batch begins AT its start | each_row_arrives_once
    stream.reading.retention:RetentionCheck.check_start
    + return fetched.page.records
a batch begins by arrival time | each_row_arrives_once
    stream.reading.shard_cursor:ShardCursor.__init__
    - self.shard_id = shard_id
    + self.shard_id = shard_id
    + if isinstance(position, AfterRecord) and position.clear_until is not None:
    +     from sparkinesis.stream.position import AtTimestamp
    +     position = AtTimestamp(position.clear_until)
children are planned with their parents' last range | parents_come_first
    source.planning.stream_planner:StreamPlanner.finish
    + from sparkinesis.source.planning.batch_end import Records
    + from sparkinesis.stream.position import END_OF_TIME_MS, AfterRecord
    + end = was(self, plan, start, choice)
    + if end is start:
    +     return end
    + added = {}
    + for shard, prober in plan.active.items():
    +     if prober.front.is_ended and isinstance(end.get(shard), AfterRecord):
    +         for child in self._kept.listing.lineage.children_of_ended(shard) or ():
    +             found = plan.children[child].find_end(END_OF_TIME_MS).end.finding
    +             if isinstance(found, Records):
    +                 added[child] = AfterRecord(found.end)
    + return {**end, **added}
children enter before other shards have reached the reshard | batches_advance_together
    source.planning.stream_plan:StreamPlan._successions
    + return ()
the end of a shard is expected with its last records | batches_advance_together | rare
    source.planning.probing.shard_prober:ShardProber.meet_end
    + pass
the limit is met by shares of shards | batches_advance_together
    source.planning.batch_instant:choose
    + return was(surveys, replace(bounds, drift=float("inf")), previous)
the newest probe decides how far all shards go | batches_advance_together | rare
    stream.calls.client:StreamClient.get_records
    - now_ms, asked_ms)
    + now_ms, asked_ms + 5000)
a silence is stored as longer than it is known to be | everything_arrives
    source.planning.probing.shard_calls:CLOCK_MARGIN_MS
    + -30_000
a merge waits for one parent only | parents_come_first
    stream.shard:Lineage.listed_parents
    + return ()
a replay is planned anew | batches_are_the_same_each_time
    source.datasource:KinesisStreamReader.partitions
    - since, until =
    + from pyspark.sql.streaming.datasource import ReadAllAvailable
    + end = self.latestOffset(start, ReadAllAvailable())
    + since, until =
a stale ListShards is trusted | loss_is_reported
    source.planning.kept:ListedShards.renew_until_complete
    + pass
an empty page is the tip | everything_arrives
    source.planning.probing.shard_calls:ShardFront._fetch
    - self.at_tip = is_last(cursor, fetched)
    + self.at_tip = is_last(cursor, fetched) or not fetched.page.records
a gap in retention is skipped silently | everything_arrives
    stream.reading.retention:may_have_lost
    + return False
a replay does not check for the records of its plan | everything_arrives | rare
    stream.reading.retention:RetentionCheck.check_planned_first
    + return True
the present retention period is trusted | everything_arrives
    stream.reading.retention:is_kept
    + return False
a stream created anew is taken for the old one | everything_arrives | rare
    stream.reading.retention:is_of_another_stream
    + return False
failOnDataLoss=false does not log its losses | everything_arrives
    stream.reading.retention:RetentionCheck._report
    - self._accept(text)
    + pass
an expired iterator starts over | batches_are_the_same_each_time
    stream.reading.shard_cursor:ShardCursor.fetch
    + place = self._position, self._inclusive
    + fetched = was(self, limit)
    + self._position, self._inclusive = place
    + self._early_filter.apply = lambda fetched: fetched
    + return fetched
the local clock is taken for the service's | everything_arrives
    stream.timing:service_time
    + return local_ms
a batch may hold four times the limit | limits_hold
    source.planning.probing.records_in_hand:Scale.weigh
    + return [weight / 4 for weight in was(self, records, rows)]
the rest of a batch is not planned again | everything_arrives
    source.planning.probing.records_in_hand:RecordsInHand.after
    + return RecordsInHand() if count else was(self, count)
old records are skipped while the query runs | everything_arrives
    source.planning.stream_planner:StreamPlanner.begin
    + age, end = self._start.skip_older_than, was(self, start, allowance)
    + self._start.skip_older_than = age
    + return end
available now has no end | available_now_ends_where_it_should | rare
    source.planning.stream_planner:StreamPlanner.stop_at
    + pass
an idle stream makes batches | idle_streams_make_no_batches
    source.planning.batch_end:FRESH_FOR_MS
    + -1
calls are not spaced | calls_stay_within_budgets
    stream.reading.budget:CallBudget.__enter__
    + pass
GetRecords resumes AT the last record of a subscription | each_row_arrives_once
    source.reading.subscribed_cursor:SubscribedCursor._next_event
    - self._inclusive = False
    + self._early_filter.apply = lambda fetched: fetched
GetRecords begins where the subscription began | each_row_arrives_once
    source.reading.subscribed_cursor:SubscribedCursor._next_event
    - self.position = AfterRecord(page.records[-1].sequence_number)
    + self._early_filter.apply = lambda fetched: fetched
    - self._inclusive = False
    + pass
GetRecords begins at the oldest record without a subscription | each_row_arrives_once
    source.reading.subscribed_cursor:SubscribedCursor.fetch
    - self._subscription.begin(self.position)
    + self._subscription.begin(self.position)
    + if not self._subscription.is_open:
    +     self.position = Sentinel.TRIM_HORIZON
    +     self._early_filter.apply = lambda fetched: fetched
the subscription of a range is left open | subscriptions_end_with_their_tasks
    source.reading.subscribed_cursor:RangeSubscription.end
    + self._open = None
each range asks for a subscription | machines_take_turns
    source.reading.subscribed_cursor:SubscribeLimiter.try_acquire
    + return True
a machine asks again too soon | machines_take_turns
    source.reading.subscribed_cursor:BETWEEN_SUBSCRIPTIONS
    + 4.0
""")
