"""Ranges that are read by enhanced fan-out as a subject, and planted bugs in that."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.simulation.logs import quiet_logging
from tests.simulation.ranges.invariants import check
from tests.simulation.ranges.world import DURATION, Ranges
from tests.simulation.subject import Outcome, Subject, planted

BUGS = planted("""
GetRecords resumes AT the last record of a subscription | ranges_are_read_exactly
    source.reading.subscribed_cursor:SubscribedCursor._next_event
    - self._inclusive = False
    + self._early_filter.apply = lambda fetched: fetched
GetRecords begins where the subscription began | ranges_are_read_exactly
    source.reading.subscribed_cursor:SubscribedCursor._next_event
    - self.position = AfterRecord(page.records[-1].sequence_number)
    + self._early_filter.apply = lambda fetched: fetched
    - self._inclusive = False
    + pass
GetRecords begins at the oldest record without a subscription | ranges_are_read_exactly
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


def play(number: int) -> Outcome:
    with quiet_logging():
        ranges = Ranges(number).run()
    records = sum(len(each.found) for each in ranges.readings)
    took = (each.ended - each.began for each in ranges.last if each.ended is not None)
    return Outcome(check(ranges), DURATION, records, max(took, default=0.0))


def tell(number: int) -> str:
    with quiet_logging():
        ranges = Ranges(number).run()
    lines = [f"Ranges({number})", *map(str, ranges.troubles)]
    for each in ranges.readings:
        read = f"{len(each.found)} of {len(each.expected)} records of {each.shard_id}"
        lines.append(f"{each.began:9.3f}  {each.process} {each.outcome}, {read}")
    return "\n".join([*lines, *(check(ranges) or ["Nothing was wrong."])])


RANGES: Subject[int] = Subject(
    "ranges of queries, by enhanced fan-out",
    lambda: st.integers(0, 2**32),
    lambda number: number,
    play,
    tell,
    BUGS,
)
