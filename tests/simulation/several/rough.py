"""Rough histories of several streams, by number: drawn to find bugs within few histories."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from tests.simulation import history as h
from tests.simulation.histories import QUICK, in_order

_DURATION = 160.0
_ASK = 10.0
Timed = tuple[float, h.Event]


def rough_several(number: int) -> h.History:
    """A history of two to four streams, with one of `_THEMES`."""
    rng = random.Random(number)
    count = rng.randint(2, 4)
    streams = tuple(h.OneOf(rng.randint(1, 2)) for _ in range(count))
    when = functools.partial(rng.uniform, 1.0, _DURATION - 1.0)
    events: list[Timed] = [(0.0, h.Start(0)), (1.0, h.Start(1))]
    for stream in range(count):
        events += [
            (when(), h.On(stream, h.Put(rng.randrange(6), rng.randint(1, 3)))) for _ in range(30)
        ]
    history = h.History(
        seed=number,
        events=tuple(events),
        options=QUICK,
        streams=streams,
        ask_every=_ASK,
        duration=_DURATION,
        patience=700.0,
    )
    history = _THEMES[number % len(_THEMES)](history, rng)
    return replace(history, events=in_order(list(history.events), _DURATION))


def _more(history: h.History, events: Iterable[Timed]) -> h.History:
    return replace(history, events=(*history.events, *events))


def _reshards(history: h.History, rng: random.Random) -> h.History:
    """Reshards in every stream, and processors that are slow and fail."""
    events: list[Timed] = []
    for stream in range(len(history.streams)):
        for _ in range(rng.randint(1, 3)):
            reshard = rng.choice((h.Split, h.Split, h.Merge))(rng.random())
            events.append((rng.uniform(5.0, 120.0), h.On(stream, reshard)))
    behaviour = h.Behaviour(
        checkpoint=rng.choice((1.0, 0.3)),
        odd_checkpoint=rng.choice((0.0, 0.4)),
        fail=rng.choice((0.0, 0.2)),
        slow=rng.choice((0.0, 0.5)),
        slowest=rng.choice((4.0, 12.0)),
    )
    return replace(_more(history, [*events, *_lives(rng)]), behaviour=behaviour)


def _lives(rng: random.Random) -> list[Timed]:
    """Pauses, and a crash."""
    events: list[Timed] = [
        (rng.uniform(10.0, 140.0), h.Pause(rng.randrange(2), rng.choice((5.0, 15.0, 25.0))))
        for _ in range(rng.randint(0, 2))
    ]
    if rng.random() < 0.6:
        at, worker = rng.uniform(10.0, 130.0), rng.randrange(2)
        events += [(at, h.Crash(worker)), (at + 0.5, h.Start(worker, rng.random() < 0.5))]
    return events


def _tracked(history: h.History, rng: random.Random) -> h.History:
    """Streams are added, removed, and returned; leases are deleted by one of the strategies."""
    count = len(history.streams)
    events: list[Timed] = []
    at = rng.uniform(10.0, 30.0)
    while at < 130.0:
        kept = tuple(n for n in range(count) if rng.random() < 0.6)
        events.append((at, h.Track(kept or (rng.randrange(count),))))
        at += rng.uniform(12.0, 45.0)
    if rng.random() < 0.5:
        events.append((at, h.Track(tuple(range(count)))))
    if rng.random() < 0.3:
        events.append((rng.uniform(10.0, 100.0), h.TrackerFails(30.0)))
    former = h.Former(
        rng.choice((None, 0.0, 20.0, 40.0, 40.0)), rng.choice((None, None, (0,), (1, 2)))
    )
    first = None if rng.random() < 0.5 else (rng.randrange(count),)
    events = [(at, e) for at, e in events if at < _DURATION]
    history = replace(history, former=former, tracked=first)
    return _more(history, [*events, *_some(rng, _lives)])


def _anew(history: h.History, rng: random.Random) -> h.History:
    """Streams are deleted and made anew, with the same shard ids."""
    events: list[Timed] = []
    for stream in range(len(history.streams)):
        if rng.random() < 0.7 or not stream:
            after = rng.choice((2.0, 2.0, 8.0, 25.0, None) if stream else (2.0, 8.0, 25.0))
            at = rng.uniform(20.0, 110.0)
            events.append((at, h.Anew(stream, after, rng.randint(1, 2))))
        if rng.random() < 0.5:
            events.append((rng.uniform(5.0, 120.0), h.On(stream, h.Split(rng.random()))))
    behaviour = h.Behaviour(checkpoint=rng.choice((1.0, 1.0, 0.3, 0.0)))
    former = h.Former(rng.choice((None, 0.0, 30.0)))
    if history.seed % 2:  # shards that are polled seldom do not notice that a stream was gone
        history = replace(history, options={**QUICK, "idle_time": 8.0})
        behaviour = replace(behaviour, checkpoint=0.0)
    return replace(
        _more(history, [*events, *_some(rng, _lives)]), former=former, behaviour=behaviour
    )


def _some(rng: random.Random, make: Callable[[random.Random], list[Timed]]) -> list[Timed]:
    return make(rng) if rng.random() < 0.4 else []


def _one_fails(history: h.History, rng: random.Random) -> h.History:
    """Nothing else is wrong; another stream is added meanwhile."""
    count = len(history.streams)
    bad, kind = rng.randrange(count), rng.choice(("denied", "throttle", "timeout", "error"))
    trouble = h.Trouble(kind, 1.0, 120.0, "kinesis", stream=bad)
    begins = rng.choice((0.0, 0.0, 0.0, 30.0))
    events: list[Timed] = [(begins, trouble)]
    first = None
    if count > 2:
        late = rng.choice([n for n in range(count) if n != bad])
        first = tuple(n for n in range(count) if n != late)
        at = begins + rng.uniform(2.0, 20.0)
        events.append((at, h.Track(tuple(range(count)))))
    return replace(_more(history, events), tracked=first)


def _partition(history: h.History, rng: random.Random) -> h.History:
    """A worker cannot reach the lease table, for a while."""
    kind, seconds = rng.choice(("timeout", "timeout_after", "refused")), rng.choice((8.0, 30.0))
    trouble = h.Trouble(kind, 1.0, seconds, "dynamodb", rng.randrange(2))
    events: list[Timed] = [(rng.uniform(20.0, 120.0), trouble)]
    if rng.random() < 0.5:
        at = rng.uniform(20.0, 100.0)
        events += [(at, h.Track((0,))), (at + 20.0, h.Track(tuple(range(len(history.streams)))))]
    return _more(history, [*events, *_lives(rng)])


def _stopping(history: h.History, rng: random.Random) -> h.History:
    """`Stop`: shards of one stream are given up, those of the same ids in others are not."""
    behaviour = h.Behaviour(fail=0.05)
    return replace(_more(history, _some(rng, _lives)), on_error="stop", behaviour=behaviour)


_THEMES = (_reshards, _tracked, _anew, _one_fails, _partition, _tracked, _stopping)
