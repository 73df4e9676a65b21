"""Histories for hypothesis to draw, and to make simple where one fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.network import FAULTS

_T = TypeVar("_T")
_Draw = Callable[[st.SearchStrategy[_T]], _T]

WORKERS = 4

_OPTIONS = {"idle_time": 2.0, "audit_interval": 20.0, "cleanup_interval": 15.0}
"""Not the defaults: a quiet shard is asked for less often, and mended sooner, to save time."""

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
    events += some(_puts, 3, 50)
    events += some(_reshards, 0, 8)
    events += some(_lives, 0, 10)
    events += some(_troubles, 0, 6)
    return h.History(
        seed=draw(st.integers(0, 2**16)),
        shards=draw(st.integers(1, 4)),
        events=tuple(sorted(events, key=lambda event: event[0])),
        behaviour=draw(_behaviours),
        options=_OPTIONS,
        preempt=draw(st.sampled_from((0.0, 0.02, 0.2))),
        staleness=draw(st.sampled_from((0.0, 0.1, 0.5))),
        empty_pages=draw(st.sampled_from((0, 2))),
        duration=float(duration),
    )
