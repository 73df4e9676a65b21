"""Invariants of tasks that read ranges by enhanced fan-out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.ranges.world import Ranges
from tests.simulation.rules import broken, no_thread_ends_by_an_error

_BETWEEN = 5.0
"""Seconds between two subscriptions of a consumer to a shard, by the service's rules."""


def ranges_are_read_exactly(ranges: Ranges) -> Iterator[str]:
    """A task reads exactly its range, in order, once; a failed task a prefix of it."""
    for reading in ranges.readings:
        expected = reading.expected
        if reading.outcome != "whole":
            expected = expected[: len(reading.found)]
        if reading.found != expected:
            places = [reading.expected.index(n) for n in reading.found if n in reading.expected]
            yield f"{reading.process} read {places} of {len(reading.expected)} records"
        if reading.outcome == "under way" and not reading.process.is_killed:
            yield f"{reading.process}, begun at {reading.began:.3f}, does not end"
        # All else passes, and is waited for.
        if "failed" in reading.outcome and not ranges.was_denied(reading):
            yield f"{reading.process} {reading.outcome} without a reason"


def subscriptions_end_with_their_tasks(ranges: Ranges) -> Iterator[str]:
    """Each subscription is closed with its task: an open one costs money."""
    ended = {reading.process: reading.ended for reading in ranges.readings}
    for one in ranges.subscriptions.connections:
        at = ended[one.process]
        if one.opened is None or one.process.is_killed or at is None:
            continue  # nobody has heard of it, or nobody is there any more
        if one.closed is None or one.closed > at:
            yield f"{one.process} has ended, and its subscription to {one.shard_id} has not"


def machines_take_turns(ranges: Ranges) -> Iterator[str]:
    """A machine asks for a shard once in five seconds, or one after it was refused."""
    asked: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for call in ranges.subscriptions.calls:
        machine = call.process.name.rpartition(" ")[2]
        is_refusal = call.error == "ResourceInUseException"
        asked[machine, call.shard_id].append((call.at, is_refusal))
    for (machine, shard_id), calls in asked.items():
        for (before, was_refused), (at, _) in pairwise(sorted(calls)):
            if at - before < (1.0 if was_refused else _BETWEEN):
                yield f"machine {machine} asked for {shard_id} at {before:.3f} and {at:.3f}"


_INVARIANTS = (
    no_thread_ends_by_an_error,
    ranges_are_read_exactly,
    subscriptions_end_with_their_tasks,
    machines_take_turns,
)


def check(ranges: Ranges) -> list[str]:
    """All that is wrong, by the invariants' names."""
    return list(broken(_INVARIANTS, ranges))
