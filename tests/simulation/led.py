"""Histories of fleets with a leader: one of ours or a Java KCL's, and changes of the mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.histories import QUICK, Draw, histories, in_order, led
from tests.simulation.rough import plain_history, rough_history

_Events = list[tuple[float, h.Event]]

_DURATION = 240.0
_MODES: tuple[h.Mode, ...] = ("2X", "upgrade", "3X with rollback", "3X")


@st.composite
def led_histories(draw: Draw) -> h.History:
    """The others, of fleets with a leader."""
    history: h.History = draw(histories())
    duration = int(history.duration)
    times = st.integers(0, duration * 10 - 1).map(lambda tenth: tenth / 10)
    happens = st.builds(h.SetMode, st.sampled_from(_MODES)) | st.builds(
        h.JavaLeader,
        st.sampled_from((20.0, 60.0, 150.0)),
        st.sampled_from((0.0, 0.0, 40.0, 130.0)),
        st.booleans(),
    )
    more = draw(st.lists(st.tuples(times, happens), max_size=3))
    history = replace(history, events=in_order([*history.events, *more], history.duration))
    return led(history, by_count=draw(st.booleans()))


def rough_led(number: int) -> h.History:
    """A rough history of workers with a leader, with one of `_THEMES`."""
    return _THEMES[number % len(_THEMES)](number, random.Random(-3 - number))


def _crashing(number: int, rng: random.Random) -> h.History:
    """Workers come, crash and leave, and nothing else happens; shards split meanwhile."""
    base = plain_history(number)
    at, events = rng.uniform, [e for e in base.events if isinstance(e[1], h.Put)]
    events += [(0.0, h.Start(0)), (at(0.0, 3.0), h.Start(1)), (at(0.0, 20.0), h.Start(2))]
    for _ in range(rng.randint(1, 4)):
        ends: type[h.Crash | h.Shutdown] = h.Crash if rng.random() < 0.7 else h.Shutdown
        worker, when = rng.randrange(3), at(20.0, 200.0)
        events.append((when, ends(worker)))
        if rng.random() < 0.6:
            events.append((when + at(0.5, 60.0), h.Start(worker)))
    events += [(at(5.0, 220.0), h.Split(rng.random())) for _ in range(rng.randint(0, 4))]
    events += [(at(5.0, 220.0), h.Put(rng.randrange(8), rng.randint(1, 4))) for _ in range(20)]
    events = [each for each in events if each[0] < _DURATION]
    calm = replace(base.behaviour, fail=0.0, slow=0.0)
    history = replace(
        base,
        shards=rng.randint(2, 6),
        events=in_order(events, _DURATION),
        behaviour=calm,
        options=QUICK,
        duration=_DURATION,
    )
    return led(history, by_count=rng.random() < 0.3)


def _rough(number: int, rng: random.Random) -> h.History:
    """What happens to record processors; the leader assigns what an operator has reset."""
    base = rough_history(rng.randrange(1000) + number)
    history = led(base, by_count=rng.random() < 0.3)
    resets = [(rng.uniform(5.0, 110.0), h.Reset("TRIM_HORIZON")) for _ in range(rng.randint(0, 4))]
    return replace(history, events=in_order([*history.events, *resets], history.duration))


def _slow(number: int, rng: random.Random) -> h.History:
    """Owners that are long in giving up what the leader moves, and workers that come later."""
    base = plain_history(number)
    events: _Events = [*base.events, (rng.uniform(20.0, 60.0), h.Start(2))]
    hang = rng.choice((0.0, 0.03))
    behaviour = replace(base.behaviour, fail=0.0, slow=0.5, slowest=15.0, hang=hang)
    history = replace(
        base,
        shards=rng.randint(2, 5),
        events=in_order(events, base.duration),
        behaviour=behaviour,
        options={**QUICK, "handoff_timeout": rng.choice((5.0, 30.0))},
        patience=1600.0,
    )
    return led(history, by_count=rng.random() < 0.3)


def _beside_java(number: int, rng: random.Random) -> h.History:
    """A Java leader that leaves, dies or stands still."""
    base = _with_third(plain_history(number), rng)
    more: _Events = []
    for _ in range(rng.randint(1, 2)):
        still = rng.choice((0.0, 0.0, 40.0, 130.0))
        leader = h.JavaLeader(rng.choice((30.0, 90.0, 200.0)), still, rng.random() < 0.5)
        more.append((rng.choice((0.0, rng.uniform(1.0, 100.0))), leader))
    history = replace(base, events=in_order([*more, *base.events], base.duration))
    return led(history, by_count=rng.random() < 0.7)


def _migrating(number: int, rng: random.Random) -> h.History:
    """An operator takes the fleet to a leader, and back."""
    base = _with_third(plain_history(number), rng)
    at, more = rng.uniform(5.0, 30.0), list[tuple[float, h.Event]]()
    for mode in ("upgrade", "3X with rollback", "2X", "upgrade", "3X"):
        if rng.random() < 0.8:
            more.append((at, h.SetMode(mode)))
            at += rng.uniform(1.0, 40.0)
    events = [each for each in [*base.events, *more] if each[0] < base.duration]
    history = led(base, by_count=rng.random() < 0.5)
    return replace(history, events=in_order(events, base.duration))


def _with_third(history: h.History, rng: random.Random) -> h.History:
    events: _Events = [*history.events, (rng.uniform(2.0, 60.0), h.Start(2))]
    events.append((rng.uniform(60.0, 110.0), h.Crash(rng.randrange(3))))
    return replace(history, shards=rng.randint(2, 5), events=in_order(events, history.duration))


_THEMES: tuple[Callable[[int, random.Random], h.History], ...] = (
    _crashing,
    _rough,
    _slow,
    _beside_java,
    _migrating,
)
