"""Histories of the ways to write an application: functions, coroutines, loops, single records."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.histories import Draw
from tests.simulation.relaxed import AUTOMATIC, relaxed_histories, rough_relaxed

_DEFAULT: dict[str, Any] = {"checkpoint_seconds": None, "checkpoint_records": None}

_WAYS: tuple[dict[str, Any], ...] = (
    {"way": "class", "concurrency": 3},
    {"way": "class", "concurrency": 3, "is_async": True},
    {"way": "function", "concurrency": 1, **_DEFAULT},
    {"way": "function", "concurrency": 8, "is_async": True},
    {"way": "class", "is_async": True},
    {"way": "function", **_DEFAULT},
    {"way": "function", "is_async": True},
    {"way": "loop", **_DEFAULT},
    {"way": "loop", **AUTOMATIC[0]},
)


@st.composite
def ways_histories(draw: Draw) -> h.History:
    """The relaxed ones, written in other ways."""
    history: h.History = draw(relaxed_histories())
    return written(history, draw(st.sampled_from(_WAYS)))


def rough_ways(number: int) -> h.History:
    """Rough ones with automatic checkpoints, with calls that fail, hang, and are cancelled."""
    rng = random.Random(-2 - number)
    history = rough_relaxed(4 * (number // 2) + number % 2 * 2)
    behaviour = replace(
        history.behaviour,
        hang=rng.choice((0.0, 0.05)),
        slow=rng.choice((0.1, 0.4)),
        defers=rng.choice((0.0, 0.02)),
    )
    more = [(rng.uniform(20.0, 90.0), event) for event in (h.Shutdown(1), h.Start(2))]
    policy: Any = rng.choice(("retry", "retry", "skip", "dead letter", "retry, then dead letter"))
    events = sorted([*history.events, *more], key=lambda event: event[0])
    history = replace(history, events=tuple(events), behaviour=behaviour, on_error=policy)
    return written(history, _WAYS[number % len(_WAYS)])


def written(history: h.History, how: dict[str, Any]) -> h.History:
    """The same history of an application that is written in one of the ways."""
    options = {**history.options, **how}
    way, is_async = options.pop("way"), options.pop("is_async", False)
    behaviour = history.behaviour
    if way == "loop":  # what fails ends the program, and is there again when it begins anew
        often = max(behaviour.checkpoint, 0.5)
        behaviour = replace(behaviour, checkpoint=often, poison=None, defers=0.0)
    return replace(history, options=options, behaviour=behaviour, way=way, is_async=is_async)
