"""Histories of applications that were away for longer than records are kept, by number."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.histories import QUICK

_HOUR = 3600.0
_AWAY = 60.0
"""When the workers crash, in virtual seconds."""


def rough_away(number: int) -> h.History:
    """Outages with reshards, first starts that die, changes of retention, edits of the table."""
    rng = random.Random(number)
    matter = number % 3
    events: list[tuple[float, h.Event]] = [(1.0, h.Start(0))]
    if matter == 0 or rng.random() < 0.3:
        # It dies between its first leases, or a moment later.
        events += [(1.0 + rng.uniform(0.05, 1.0), h.Crash(0)), (rng.uniform(5.0, 40.0), h.Start(0))]
    events += _puts(rng, 0.0, _AWAY, 12)
    shards = rng.randint(1, 3)
    if matter == 1:
        shards = max(shards, 2)
        events += _deletion(rng, shards)
    end = 150.0
    if matter == 2 or rng.random() < 0.5:
        events.append((_AWAY, h.Crash(0)))
        if rng.random() < 0.4:
            events += [(_AWAY + 10.0, h.Split(rng.random())), (_AWAY + 11.0, h.Start(0))]
            events.append((_AWAY + rng.uniform(12.0, 25.0), h.Crash(0)))
        hours = rng.choice((20.0, 26.0, 26.0, 40.0, 55.0))
        events += _outage(rng, _AWAY + 30.0, hours * _HOUR)
        end = _AWAY + 30.0 + hours * _HOUR
        events += [(end, h.Start(0)), (end + 1.0, h.Start(1))]
        events += _puts(rng, end, end + 60.0, 8)
        end += 120.0
    return h.History(
        seed=number,
        shards=shards,
        events=tuple(sorted((each for each in events if each[0] < end), key=lambda each: each[0])),
        behaviour=h.Behaviour(checkpoint=rng.choice((1.0, 0.3))),
        options=QUICK,
        initial_position=rng.choice(("latest", "latest", "trim_horizon")),
        duration=end,
    )


def _puts(rng: random.Random, since: float, until: float, count: int) -> list[Any]:
    return [
        (rng.uniform(since, until), h.Put(rng.randrange(8), rng.randint(1, 3)))
        for _ in range(count)
    ]


def _deletion(rng: random.Random, shards: int) -> list[Any]:
    """A hand deletes a row, and a moment later the shard is merged with the one beside it."""
    at, place = rng.uniform(10.0, 40.0), rng.randrange(shards)
    first = min(place, shards - 2) if rng.random() < 0.5 else max(place - 1, 0)
    return [
        (at, h.Foreign("delete", (place + 0.5) / shards)),
        *((rng.uniform(at - 1.0, at + 6.0), h.Put(rng.randrange(8), 2)) for _ in range(12)),
        (at + rng.uniform(0.1, 8.0), h.Merge((first + 0.5) / shards)),
    ]


def _outage(rng: random.Random, since: float, seconds: float) -> list[Any]:
    """The events of the stream while no worker runs."""
    events = _puts(rng, since, since + seconds, 16)
    for _ in range(rng.choice((0, 2, 2, 3))):
        at = since + seconds * rng.random()
        events += [(at, h.Split(0.0)), (at + 1.0, h.Split(0.99))]
    if rng.random() < 0.3:
        events.append((since + seconds * rng.random(), h.Merge(0.0)))
    if rng.random() < 0.4:
        shorter = since + seconds * rng.uniform(0.6, 0.9)
        events += [(0.5, h.Retention(72)), (shorter, h.Retention(24))]
        events.append((shorter + 60.0, h.Retention(72)))
    return events


def away_histories() -> st.SearchStrategy[h.History]:
    """Draws the histories that `rough_away` makes."""
    return st.integers(0, 2**20).map(rough_away)
