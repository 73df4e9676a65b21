"""Histories: drawn by hypothesis, which makes simple one that fails; and rough ones by number."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.network import FAULTS

_T = TypeVar("_T")
_Draw = Callable[[st.SearchStrategy[_T]], _T]

WORKERS = 4

_QUICK = {"idle_time": 2.0, "audit_interval": 20.0, "cleanup_interval": 15.0}
"""Not the defaults: a quiet shard is asked for less often, and mended sooner, to save time."""

_VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"max_records": 2},
    {"max_leases": 3},
    {"processing_time_limit": 4.0, "give_up_after_limit": True},
    {"failover_time": 5.0, "handoff_timeout": 2.0, "parent_poll_interval": 3.0},
    {"call_even_for_empty_batches": True},
    {"retrieval": "efo"},
)

_places = st.integers(0, 15).map(lambda sixteenth: sixteenth / 16)
_workers = st.integers(0, WORKERS - 1)
_rates = st.sampled_from((0.02, 0.1, 0.3, 1.0))
_never_to_often = st.sampled_from((0.0, 0.1, 0.3))

_puts = st.builds(h.Put, st.integers(0, 7), st.integers(1, 8))
_reshards = st.builds(h.Split, _places) | st.builds(h.Merge, _places)
_lives = (
    st.builds(h.Start, _workers, st.booleans())
    | st.builds(h.Crash, _workers)
    | st.builds(h.Pause, _workers, st.sampled_from((1.0, 5.0, 11.0, 30.0, 60.0)))
    | st.builds(h.Shutdown, _workers)
)
_troubles = st.builds(
    h.Trouble,
    st.sampled_from(FAULTS),
    _rates,
    st.integers(1, 40).map(float),
    st.sampled_from((None, "kinesis", "dynamodb")),
    st.none() | _workers,
) | st.builds(h.Lag, st.sampled_from((1.0, 5.0, 15.0)), st.integers(5, 30).map(float))

_behaviours = st.builds(
    h.Behaviour,
    checkpoint=st.sampled_from((1.0, 0.2, 0.0)),
    odd_checkpoint=_never_to_often,
    prepare=_never_to_often,
    fail=_never_to_often,
    slow=_never_to_often,
    slowest=st.sampled_from((2.0, 15.0)),
    checkpoint_at_shutdown=st.booleans(),
)


@st.composite
def histories(draw: _Draw[Any]) -> h.History:
    """Of one to five minutes, with up to four workers."""
    duration: int = draw(st.sampled_from((60, 120, 240)))
    times = st.integers(0, duration * 10 - 1).map(lambda tenth: tenth / 10)

    def some(what: st.SearchStrategy[h.Event], least: int, most: int) -> list[Any]:
        found: list[Any] = draw(st.lists(st.tuples(times, what), min_size=least, max_size=most))
        return found

    events = [(0.0, h.Start(worker)) for worker in range(draw(st.integers(1, 3)))]
    events += some(_puts, 10, 50)
    events += some(_reshards, 0, 8)
    events += some(_lives, 0, 10)
    events += some(_troubles, 0, 6)
    return h.History(
        seed=draw(st.integers(0, 2**16)),
        shards=draw(st.integers(1, 4)),
        events=tuple(sorted(events, key=lambda event: event[0])),
        behaviour=draw(_behaviours),
        options={**_QUICK, **draw(st.sampled_from(_VARIANTS))},
        preempt=draw(st.sampled_from((0.0, 0.02, 0.2))),
        staleness=draw(st.sampled_from((0.0, 0.1, 0.5))),
        empty_pages=draw(st.sampled_from((0, 2))),
        duration=float(duration),
    )


def rough_history(number: int) -> h.History:
    """One of those that find bugs soon: sleepers, lost answers, processors that fail."""
    rng = random.Random(number)
    duration = 120.0
    when = functools.partial(rng.uniform, 1.0, duration - 1.0)
    events: list[tuple[float, h.Event]] = [(0.0, h.Start(0)), (1.0, h.Start(1))]
    events += [(when(), h.Put(rng.randrange(8), rng.randint(1, 4))) for _ in range(60)]
    events += [(when(), h.Split(rng.random())) for _ in range(rng.randint(0, 3))]
    events += [(when(), h.Merge(rng.random())) for _ in range(rng.randint(0, 2))]
    for _ in range(rng.randint(1, 4)):
        events.append((when(), h.Pause(rng.randrange(2), rng.choice((5.0, 11.0, 15.0, 25.0)))))
    if rng.random() < 0.5:
        at, worker = when(), rng.randrange(3)
        events += [(at, h.Crash(worker)), (at + 0.5, h.Start(worker, rng.random() < 0.5))]
    for kind, service in (
        (rng.choice(("timeout_after", "reset_after", "error_after")), "dynamodb"),
        (rng.choice(("expired", "denied", "timeout", "throttle")), "kinesis"),
    ):
        trouble = h.Trouble(kind, rng.choice((0.1, 0.3, 0.6)), rng.uniform(5.0, 40.0))
        events.append((when(), replace(trouble, service=service)))  # type: ignore[arg-type]
    behaviour = h.Behaviour(
        checkpoint=rng.choice((1.0, 0.3)),
        odd_checkpoint=rng.choice((0.0, 0.4)),
        fail=rng.choice((0.0, 0.2)),
        slow=rng.choice((0.0, 0.3)),
        slowest=4.0,
    )
    return h.History(
        seed=number,
        shards=rng.randint(1, 3),
        events=tuple(sorted((e for e in events if e[0] < duration), key=lambda e: e[0])),
        behaviour=behaviour,
        options=_QUICK,
        duration=duration,
    )
