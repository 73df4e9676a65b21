"""Histories of several streams as hypothesis draws them, which makes simple one that fails."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.histories import Draw, histories, in_order

_MOST, _LONGEST = 4, 240.0
_PATIENCE = 700.0

_FAILS = ("denied", "throttle", "timeout", "error", "slow")
_places = st.none() | st.sampled_from(("latest", "trim_horizon"))
_formers = st.builds(
    h.Former,
    st.sampled_from((None, None, 0.0, 20.0, 60.0)),
    st.sampled_from((None, None, (0,), (1, 2))),
)


@st.composite
def several_histories(draw: Draw) -> h.History:
    """The histories of one stream, whose events happen to two to four streams.

    Their tracker changes its mind, streams fail, and are made anew. Without operators, enhanced
    fan-out, and times of hours in which records expire.
    """
    base: h.History = draw(histories().filter(lambda one: one.duration <= _LONGEST))
    count: int = draw(st.integers(2, _MOST))
    numbers = st.integers(0, count - 1)
    sets = st.lists(numbers, min_size=1, max_size=count, unique=True).map(
        lambda found: tuple(sorted(found))
    )
    times = st.integers(0, int(base.duration) * 10 - 1).map(lambda tenth: tenth / 10)
    events: list[tuple[float, h.Event]] = []
    for at, event in base.events:
        if isinstance(event, h.Put | h.Split | h.Merge | h.Storm):
            events.append((at, h.On(draw(numbers), event)))
        elif not isinstance(event, h.Reset):
            events.append((at, event))
    changes = (
        st.builds(h.Track, sets)
        | st.builds(h.TrackerFails, st.sampled_from((5.0, 40.0)))
        | st.builds(h.Anew, numbers, st.sampled_from((2.0, 10.0, 30.0, None)), st.integers(1, 3))
        | st.builds(
            h.Trouble,
            st.sampled_from(_FAILS),
            st.sampled_from((1.0, 0.5)),
            st.integers(10, 100).map(float),
            st.just("kinesis"),
            st.none(),
            numbers,
        )
    )
    events += draw(st.lists(st.tuples(times, changes), max_size=8))
    streams: list[h.OneOf] = draw(
        st.lists(st.builds(h.OneOf, st.integers(1, 3), _places), min_size=count, max_size=count)
    )
    if base.mode is not None:
        # As `histories.led` says: beside Java's workers LATEST leads to other checkpoints.
        streams = [h.OneOf(stream.shards, "trim_horizon") for stream in streams]
    return replace(
        base,
        streams=tuple(streams),
        events=in_order(events, base.duration),
        options={name: value for name, value in base.options.items() if name != "retrieval"},
        arrival_jitter=0.0,
        tracked=draw(st.none() | sets),
        former=draw(_formers),
        ask_every=draw(st.sampled_from((10.0, 10.0, 60.0))),
        patience=base.patience + _PATIENCE,
    )
