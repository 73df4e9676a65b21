"""Histories of automatic checkpoints, and of children that do not wait for their parents."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.histories import QUICK, Draw, histories, in_order
from tests.simulation.rough import plain_history

AUTOMATIC: tuple[dict[str, Any], ...] = (
    {"checkpoint_seconds": 5.0},
    {"checkpoint_seconds": 20.0},
    {"checkpoint_seconds": 0.0},
    {"checkpoint_records": 1},
    {"checkpoint_records": 4},
    {"checkpoint_records": 6, "checkpoint_seconds": 10.0},
)
_UNORDERED: dict[str, Any] = {"parents_first": False}
_ROUGH, _CALM = plain_history(0).duration, 400.0
"""Seconds of a rough history, and of one in which nothing but processors fails."""
_SETTLED = 90.0
"""Seconds until workers that have just started share the shards evenly, and more."""
_SELDOM = (0.0, 0.0, 0.2)
"""Probabilities that a processor checkpoints."""
_OPTIONS = (*AUTOMATIC, _UNORDERED, {**_UNORDERED, "checkpoint_seconds": 5.0})


@st.composite
def relaxed_histories(draw: Draw) -> h.History:
    """The others, with these options and with processors that checkpoint seldom or never."""
    base: h.History = draw(histories())
    options = draw(st.sampled_from(_OPTIONS))
    history: h.History = replace(base, options={**base.options, **options})
    if not history.is_automatic:
        return history
    if history.behaviour.slow * history.behaviour.slowest > 1.0:
        # Batches are cut at the next checkpoint, to one record, and may take seconds each.
        history = replace(history, patience=max(history.patience, 1600.0))
    behaviour = replace(
        history.behaviour,
        checkpoint=draw(st.sampled_from(_SELDOM)),
        odd_checkpoint=draw(st.sampled_from(_SELDOM)),
    )
    return replace(history, behaviour=behaviour)


def rough_relaxed(number: int) -> h.History:
    """Every other history has automatic checkpoints, every other one children that do not wait."""
    history, rng = plain_history(number), random.Random(-1 - number)
    if number % 4 >= 2:  # calm, but for the processors
        events = tuple(
            (at if isinstance(event, h.Start) else at + _SETTLED, event)
            for at, event in history.events
            if isinstance(event, h.Put | h.Split | h.Merge)
            or (isinstance(event, h.Start) and at < 2)
        )
        history = replace(history, events=events, duration=_CALM)
    return (_automatic if number % 2 == 0 else _unordered)(history, rng)


def _automatic(history: h.History, rng: random.Random) -> h.History:
    """The lease table refuses writes now and then, and batches fail."""
    behaviour = replace(
        history.behaviour,
        checkpoint=rng.choice(_SELDOM),
        odd_checkpoint=rng.choice(_SELDOM),
        fail=rng.choice((0.1, 0.3)),
        checkpoint_at_shutdown=rng.random() < 0.3,
    )
    if history.duration == _ROUGH:
        denied = h.Trouble("denied", 0.6, 30.0, "dynamodb")
        more = [(rng.uniform(10.0, 80.0), denied) for _ in range(2)]
        history = replace(history, events=in_order([*history.events, *more], _ROUGH))
    return replace(history, behaviour=behaviour, options={**QUICK, **rng.choice(AUTOMATIC)})


def _unordered(history: h.History, rng: random.Random) -> h.History:
    """Processors that hang with a parent, again and again."""
    behaviour = replace(history.behaviour, hang=rng.choice((0.1, 0.4)), fail=0.0)
    return replace(history, behaviour=behaviour, options={**QUICK, **_UNORDERED})
