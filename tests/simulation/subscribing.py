"""Histories of workers that subscribe (``retrieval="efo"``), with faults of subscriptions."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from sparkinesis.local.operations.context import ACCOUNT
from sparkinesis.worker.aws_options import FanOutOptions
from tests.simulation import history as h
from tests.simulation.histories import Draw, histories
from tests.simulation.journal import EPOCH_MS
from tests.simulation.kinesis import REGION
from tests.simulation.network import FAULTS
from tests.simulation.producer import STREAM
from tests.simulation.rough import plain_history

_STREAM_ARN = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{STREAM}"
_FAN_OUT = (
    FanOutOptions(),
    FanOutOptions(deregister=True),
    FanOutOptions(fall_back_to_polling=True),
    FanOutOptions(consumer_arn=f"{_STREAM_ARN}/consumer/given:{EPOCH_MS // 1000}"),
)
_LIVES = (300.0, 60.0, 20.0)
"""Seconds of a subscription's life: the service's, and shorter ones for short histories."""
_EVENTS = (1_048_576, 20)
"""Maximum bytes of an event: small ones split a few records into several events."""

_events = st.just(h.Deregister()) | st.builds(h.Crowd, st.integers(5, 60).map(float))


@st.composite
def subscribing_histories(draw: Draw) -> h.History:
    """The others, by enhanced fan-out."""
    history = draw(histories())
    times = st.integers(0, int(history.duration) * 10 - 1).map(lambda tenth: tenth / 10)
    more = draw(st.lists(st.tuples(times, _events), max_size=3))
    return _subscribing(
        history,
        more,
        fan_out=draw(st.sampled_from(_FAN_OUT)),
        delay=draw(st.sampled_from((0.0, 3.0, 20.0))),
        life=draw(st.sampled_from(_LIVES)),
        event_bytes=draw(st.sampled_from(_EVENTS)),
    )


def rough_subscribing(number: int) -> h.History:
    """A rough history: subscriptions break in every way, and are short."""
    history = plain_history(number)
    rng = random.Random(number)
    duration = history.duration
    events: list[tuple[float, h.Event]] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(FAULTS)
        trouble = h.Trouble(kind, rng.choice((0.05, 0.2, 0.5)), rng.uniform(5.0, 40.0), "kinesis")
        events.append((rng.uniform(0.0, duration), trouble))
    if rng.random() < 0.3:
        events.append((rng.uniform(0.0, duration), h.Deregister()))
    if rng.random() < 0.2:
        # At first, nobody has registered the application's own.
        began = rng.choice((0.0, rng.uniform(0.0, duration)))
        events.append((began, h.Crowd(rng.uniform(5.0, 40.0))))
    if rng.random() < 0.3:
        history = replace(history, duration=600.0)
    return _subscribing(
        history,
        events,
        fan_out=rng.choice(_FAN_OUT),
        delay=rng.choice((0.0, 3.0)),
        life=rng.choice(_LIVES),
        event_bytes=rng.choice(_EVENTS),
    )


def _subscribing(
    history: h.History,
    more: list[tuple[float, h.Event]],
    *,
    fan_out: FanOutOptions,
    delay: float,
    life: float,
    event_bytes: int,
) -> h.History:
    events = sorted((*history.events, *more), key=lambda event: event[0])
    if event_bytes < _EVENTS[0]:
        # Each record is a batch of its own, and processors may take seconds for each.
        history = replace(history, patience=max(history.patience, 1600.0))
    return replace(
        history,
        events=tuple(events),
        options={**history.options, "retrieval": "efo", "fan_out": fan_out},
        consumer_delay=delay,
        subscription_life=life,
        event_bytes=event_bytes,
    )
