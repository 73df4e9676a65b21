"""Ranges that are read by enhanced fan-out as a subject, and deliberate bugs in that."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sparkinesis.source.reading import subscribed_cursor as subscribed
from sparkinesis.source.reading.subscribed_cursor import SubscribedCursor, SubscribeLimiter
from sparkinesis.stream.position import TRIM_HORIZON
from tests.simulation.logs import quiet_logging
from tests.simulation.patches import always, take_repeats
from tests.simulation.ranges.invariants import check
from tests.simulation.ranges.world import DURATION, Ranges
from tests.simulation.subject import Bug, Outcome, Subject, instead


def _at(next_event: Any) -> Any:
    """GetRecords resumes AT the last record instead of after it."""

    def event(self: Any, *subscription: Any) -> Any:
        fetched = next_event(self, *subscription)
        self._inclusive = True
        take_repeats(self)
        return fetched

    return event


def _anew(next_event: Any) -> Any:
    """GetRecords starts at the subscription's start."""

    def event(self: Any, *subscription: Any) -> Any:
        before = self.position, self._inclusive
        fetched = next_event(self, *subscription)
        self.position, self._inclusive = before
        take_repeats(self)
        return fetched

    return event


def _by_the_oldest(subscribe: Any) -> Any:
    """Starts GetRecords at the oldest record if there is no subscription."""

    def begin(self: Any) -> Any:
        subscribe(self)
        if self._subscription is None:
            self.position = TRIM_HORIZON
            take_repeats(self)

    return begin


_EXACTLY = "ranges_are_read_exactly"

BUGS: dict[str, Bug] = {
    "GetRecords resumes AT the last record of a subscription": instead(
        SubscribedCursor, "_next_event", _at, _EXACTLY, 1
    ),
    "GetRecords begins where the subscription began": instead(
        SubscribedCursor, "_next_event", _anew, _EXACTLY, 1
    ),
    "GetRecords begins at the oldest record without a subscription": instead(
        SubscribedCursor, "_subscribe", _by_the_oldest, _EXACTLY, 0
    ),
    "the subscription of a range is left open": instead(
        SubscribedCursor,
        "_end_subscription",
        lambda _: lambda self: setattr(self, "_subscription", None),
        "subscriptions_end_with_their_tasks",
        0,
    ),
    "each range asks for a subscription": instead(
        SubscribeLimiter, "try_acquire", always(True), "machines_take_turns", 0
    ),
    "a machine asks again too soon": instead(
        subscribed, "BETWEEN_SUBSCRIPTIONS", lambda _: 4.0, "machines_take_turns", 0
    ),
}


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
