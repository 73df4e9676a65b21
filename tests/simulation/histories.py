"""Histories as hypothesis draws them, which makes simple one that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from hypothesis import strategies as st

from sparkinesis.worker.options import DEFAULT_HELD_BYTES
from tests.simulation import history as h
from tests.simulation.network import FAULTS

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

WORKERS = 4

QUICK: dict[str, Any] = {"idle_time": 2.0, "audit_interval": 20.0, "cleanup_interval": 15.0}
"""Options that save time: idle shards are polled less often, and repairs come sooner."""

LITTLE = (4_000, 20_000)
"""Bytes of memory for a process's records: a few of them at a time, and one of each shard."""

CALM = {
    "failover_time": 40.0,
    "idle_time": 20.0,
    "audit_interval": 120.0,
    "cleanup_interval": 120.0,
}
"""Options for histories that last hours."""

_BALANCES = ("throughput", "load")

_VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"max_records": 2, "hash_range_filter": True},
    {"max_leases": 3},
    {"processing_time_limit": 4.0, "give_up_after_limit": True},
    {"failover_time": 5.0, "handoff_timeout": 2.0, "parent_poll_interval": 3.0},
    {"call_even_for_empty_batches": True},
    {"skip_older_than": 20.0},
    {"skip_older_than": 0},
    {"retrieval": "efo"},
)

_SERVERS: tuple[h.TableServer, ...] = (
    "DynamoDB",
    "DynamoDB",
    "DynamoDB",
    "dynalite",
    "moto",
    "older",
)

_places = st.integers(0, 15).map(lambda sixteenth: sixteenth / 16)
_workers = st.integers(0, WORKERS - 1)
_rates = st.sampled_from((0.02, 0.1, 0.3, 1.0))
_never_to_often = st.sampled_from((0.0, 0.1, 0.3))
_seldom = st.sampled_from((0.0, 0.0, 0.0, 0.02))

_packed = st.sampled_from((0, 0, 1, 3, 8))
_puts = st.builds(h.Put, st.integers(0, 7), st.integers(1, 8), _packed) | st.builds(
    h.Put, st.none() | st.integers(0, 7), st.integers(1, 4), _packed, _places
)
_reshards = (
    st.builds(h.Split, _places)
    | st.builds(h.Merge, _places)
    | st.builds(h.Storm, st.sampled_from((5, 20)), st.sampled_from((10.0, 60.0)))
)
_pauses = st.builds(h.Pause, _workers, st.sampled_from((1.0, 5.0, 11.0, 30.0, 60.0)), st.booleans())
_lives = (
    st.builds(h.Start, _workers, st.booleans())
    | st.builds(h.Crash, _workers)
    | _pauses
    | st.builds(h.Shutdown, _workers)
    | st.builds(h.Twin, _workers)
    | st.builds(h.ClockJump, _workers, st.sampled_from((-3600.0, -0.4, 0.4, 3600.0)))
)
_troubles = (
    st.builds(
        h.Trouble,
        st.sampled_from(FAULTS),
        _rates,
        st.integers(1, 40).map(float),
        st.sampled_from((None, "kinesis", "dynamodb")),
        st.none() | _workers,
    )
    | st.builds(h.Lag, st.sampled_from((1.0, 5.0, 15.0)), st.integers(5, 30).map(float))
    | st.builds(h.DateAhead, st.sampled_from((-5.0, 3.0)), st.sampled_from((5.0, 30.0)))
)
_writers = st.builds(
    h.Foreign, st.sampled_from(("take", "evict", "note", "delete")), _places
) | st.builds(h.Reset, st.sampled_from(("LATEST", "TRIM_HORIZON", 10.0, 90.0)))

_behaviours = st.builds(
    h.Behaviour,
    checkpoint=st.sampled_from((1.0, 0.2, 0.0)),
    odd_checkpoint=_never_to_often,
    prepare=_never_to_often,
    fail=_never_to_often,
    fail_elsewhere=_never_to_often,
    slow=_never_to_often,
    slowest=st.sampled_from((2.0, 15.0)),
    hang=_seldom,
    reset=_seldom,
    leave=_seldom,
    defers=_seldom,
    checkpoint_at_shutdown=st.booleans(),
)
_policies: st.SearchStrategy[h.Policy] = st.sampled_from(
    (
        "retry", "retry", "retry", "skip", "dead letter", "stop", "retry, then skip",
        "retry, then dead letter",
    )
)  # fmt: skip


@st.composite
def histories(draw: Draw) -> h.History:
    """Draws histories of one to five minutes, or of hours, with up to four workers and twins.

    One in four has a leader that assigns the leases.
    """
    duration: int = draw(st.sampled_from((60, 120, 240)))
    times = st.integers(0, duration * 10 - 1).map(lambda tenth: tenth / 10)

    def some(what: st.SearchStrategy[h.Event], least: int, most: int) -> list[Any]:
        found: list[Any] = draw(st.lists(st.tuples(times, what), min_size=least, max_size=most))
        return found

    begins = draw(st.sampled_from((0.0, 0.0, 15.0)))
    workers: int = draw(st.integers(1, 3))
    events: list[tuple[float, h.Event]] = [(begins, h.Start(n)) for n in range(workers)]
    events += some(_puts, 10, 50)
    events += some(_reshards, 0, 6)
    events += some(_lives, 0, 10)
    events += some(_troubles, 0, 6)
    events += some(_writers, 0, draw(st.sampled_from((0, 0, 4))))
    policy = draw(_policies)
    behaviour = draw(_behaviours)
    if policy not in {"retry", "stop"}:
        behaviour = replace(behaviour, poison=draw(st.none() | st.integers(0, 7)))
    # Each record of a poisonous key is found by halves, which a slow processor takes its time for.
    is_slow = behaviour.poison is not None and behaviour.slow * behaviour.slowest > 1.0
    history = h.History(
        seed=draw(st.integers(0, 2**16)),
        shards=draw(st.integers(1, 4)),
        events=in_order(events, duration),
        behaviour=behaviour,
        options={**QUICK, **draw(st.sampled_from(_VARIANTS))},
        initial_position=draw(st.sampled_from(("trim_horizon", "trim_horizon", "latest", 10.0))),
        on_error=policy,
        preempt=draw(st.sampled_from((0.0, 0.02, 0.2))),
        staleness=draw(st.sampled_from((0.0, 0.1, 0.5))),
        empty_pages=draw(st.sampled_from((0, 2))),
        list_page=draw(st.sampled_from((1000, 3))),
        arrival_jitter=draw(st.sampled_from((0.0, 0.0, 2.0))),
        names_children=draw(st.sampled_from((True, True, False))),
        begins_early=draw(st.sampled_from((0, 0, 0, 3))),
        table_server=draw(st.sampled_from(_SERVERS)),
        memory=draw(st.sampled_from((DEFAULT_HELD_BYTES, DEFAULT_HELD_BYTES, *LITTLE))),
        duration=float(duration),
        patience=1600.0 if is_slow else 400.0,
    )
    if draw(st.sampled_from((False, False, False, True))):
        history = led(history, by_count=draw(st.booleans()))
    length = draw(st.sampled_from((None, None, None, "closed for hours", "quiet for an hour")))
    if length is None:
        return history
    cut = draw(times)
    if length == "quiet for an hour":
        return quiet(history, cut, 3600.0)
    hours = draw(st.sampled_from((1, 5, 23, 25, 30)))
    return closed(history, cut, hours * 3600.0, graceful=draw(st.booleans()))


def led(history: h.History, *, by_count: bool) -> h.History:
    """The same history with a leader that assigns the leases.

    by_count: True for workers that would have no leader, but find one that Java workers left.
    Then record processors move no shard, and all begin with the oldest record: beside Java's
    workers they write other checkpoints, which are not simulated.
    """
    if not by_count:
        balance = _BALANCES[history.seed % len(_BALANCES)]
        options = {**history.options, "balance": balance}
        return replace(history, options=options, reads_own=history.seed % 4 > 1)
    behaviour = replace(history.behaviour, reset=0.0)
    return replace(history, mode="3X", behaviour=behaviour, initial_position="trim_horizon")


def in_order(events: list[tuple[float, h.Event]], duration: float) -> tuple[Any, ...]:
    """Sorts events by time and ends storms within the history's duration."""
    return tuple(
        (at, h.Storm(event.reshards, min(event.seconds, duration - at), event.most))
        if isinstance(event, h.Storm)
        else (at, event)
        for at, event in sorted(events, key=lambda event: event[0])
    )


def closed(history: h.History, cut: float, seconds: float, *, graceful: bool) -> h.History:
    """The same, with a time in between in which no worker runs."""
    end: type[h.Shutdown | h.Crash] = h.Shutdown if graceful else h.Crash
    numbers = {e.worker for _, e in history.events if isinstance(e, h.Start)}
    twins = {e.worker + 100 for _, e in history.events if isinstance(e, h.Twin)}
    ends = [(cut, end(worker)) for worker in sorted(numbers | twins)]
    if graceful:  # what does not end by itself
        ends += [(cut + 120.0, h.Crash(worker)) for worker in sorted(numbers | twins)]
    starts = [(cut + seconds, h.Start(worker)) for worker in sorted(numbers)[:2]]
    return _with_pause(history, cut, seconds, [*ends, *starts])


def quiet(history: h.History, cut: float, seconds: float) -> h.History:
    """The same, with a time in between in which nothing happens to the workers that run."""
    events = tuple(each for each in history.events if not isinstance(each[1], h.Storm))
    history = replace(history, events=events)
    # With so much idle time, everything would be too old for a skip_older_than of seconds.
    hurried = {*CALM, *QUICK, "skip_older_than", "parent_poll_interval"}
    calm = {**CALM, **{k: v for k, v in history.options.items() if k not in hurried}}
    return replace(_with_pause(history, cut, seconds, []), options=calm, patience=1600.0)


def _with_pause(
    history: h.History, cut: float, seconds: float, more: list[tuple[float, h.Event]]
) -> h.History:
    events = [(at if at < cut else at + seconds, event) for at, event in history.events]
    events = sorted([*events, *more], key=lambda event: event[0])
    return replace(history, events=tuple(events), duration=history.duration + seconds)
