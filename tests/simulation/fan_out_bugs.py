"""Deliberate bugs in enhanced fan-out, each as a patch of one name."""

from __future__ import annotations

import math
from typing import Any

from sparkinesis.stream.fan_out import cursor as fan_out_cursor
from sparkinesis.stream.fan_out.cursor import FanOutCursor
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.worker.lifecycle.consumer_loop import ConsumerLoop
from sparkinesis.worker.retrieval.fan_out import FanOut, SubscribedShard
from tests.simulation.patches import always, take_repeats
from tests.simulation.subject import Bug, instead

_IN_ORDER = "readers_resume_where_they_should"


def _at(accept: Any) -> Any:
    """A new subscription begins AT the last event's continuation instead of AFTER it."""

    def accepted(self: Any, *event: Any) -> Any:
        fetched = accept(self, *event)
        self._inclusive = True
        take_repeats(self)
        return fetched

    return accepted


def _stay_behind_many(accept: Any) -> Any:
    """An event of several records does not say where to go on."""

    def accepted(self: Any, received: Any, *at: Any) -> Any:
        before = self._position
        fetched = accept(self, received, *at)
        if len(received.event.records) > 1:
            self._position = before
            take_repeats(self)
        return fetched

    return accepted


def _only_over(accept: Any) -> Any:
    """The children of an end event are not looked at: the subscription is over, no more.

    Nor does anybody ask GetRecords whether the shard has ended.
    """

    def accepted(self: Any, *event: Any) -> Any:
        self._last_page = lambda: None
        fetched = accept(self, *event)
        self.at_end = False
        return fetched

    return accepted


def _begin_anew(interrupted: Any) -> Any:
    def anew(self: Any, *why: Any, **more: Any) -> Any:
        interrupted(self, *why, **more)
        self._position, self._inclusive = TRIM_HORIZON, False
        take_repeats(self)

    return anew


def _until_an_event(due_in: Any) -> Any:
    """Wait for an event of an open subscription, however long: to renew it is not due, either."""

    def wait(self: Any, wake: Any) -> float:
        left: float = due_in(self, wake)
        return math.inf if left > 0 and self._subscription is not None else left

    return wait


FAN_OUT_BUGS: dict[str, Bug] = {
    "a subscription resumes AT the continuation": instead(
        FanOutCursor, "_accept", _at, _IN_ORDER, 1
    ),
    "events of many records do not move the position": instead(
        FanOutCursor, "_accept", _stay_behind_many, _IN_ORDER, 1
    ),
    "a broken subscription starts over": instead(
        FanOutCursor, "_pause_or_raise", _begin_anew, _IN_ORDER, 1
    ),
    "the end of a shard is taken for the end of a subscription": instead(
        FanOutCursor, "_accept", _only_over, "everything_is_processed", 0
    ),
    "a shard ends only if its children are named": instead(
        FanOutCursor, "_last_page", always(None), "everything_is_processed", 3
    ),
    "a silent subscription is never closed": instead(
        FanOutCursor, "due_in", _until_an_event, "everything_is_processed", 7
    ),
    "a deregistered consumer is not registered again": instead(
        FanOut, "_forget", always(None), "everything_is_processed", 4
    ),
    "a refused subscription is retried at once": instead(
        fan_out_cursor, "pause_after", always(0.0), "subscribe_calls_stay_within_limits", 0
    ),
    "a lost lease's subscription stays open": instead(
        SubscribedShard, "stop", always(None), "subscriptions_end_with_their_leases", 0
    ),
    "subscriptions are renewed each minute": instead(
        fan_out_cursor, "RENEWAL", lambda _: (40.0, 60.0), "subscriptions_are_kept", 1
    ),
    "every worker that leaves deregisters the consumer": instead(
        ConsumerLoop, "_is_last_reader", always(True), "the_last_worker_deregisters", 0
    ),
    "the last worker does not deregister the consumer": instead(
        ConsumerLoop, "_is_last_reader", always(False), "the_last_worker_deregisters", 0
    ),
}
