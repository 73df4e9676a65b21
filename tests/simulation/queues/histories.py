"""Histories of applications that consume a queue: drawn by hypothesis; and rough ones."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from tests.simulation.histories import Draw
from tests.simulation.queues import history as h

_POLICIES: tuple[h.Policy, ...] = (
    "retry",
    "retry",
    "skip",
    "dead letter",
    "retry, then skip",
    "stop",
)
_WAYS: tuple[dict[str, Any], ...] = (
    {"concurrency": 1},
    {"concurrency": 4},
    {"concurrency": 3, "is_async": True},
    {"concurrency": 2, "batch_size": 5},
    {"concurrency": 4, "batch_size": 3},
    {"concurrency": 2, "batch_size": 10, "is_async": True},
    {"concurrency": 16},
)
_rates = st.sampled_from((0.05, 0.3, 1.0))
_which = st.integers(0, 2)
_seconds = st.sampled_from((1.0, 8.0, 25.0))
_puts = st.builds(h.Put, st.integers(1, 20), st.booleans())
_troubles = st.builds(
    h.Trouble, st.sampled_from(h.KINDS), _rates, _seconds, st.none() | st.sampled_from(h.OPERATIONS)
)
_lives = (
    st.builds(h.Kill, _which)
    | st.builds(h.Sleep, _which, st.sampled_from((0.5, 8.0, 40.0)))
    | st.builds(h.Shutdown, _which, st.sampled_from((None, None, 0.0, 3.0)))
    | st.just(h.Start())
    | st.builds(h.Timeout, st.sampled_from((2, 6, 30, 90)))
)
_parts = st.sampled_from((0.0, 0.05, 0.3))
_behaviours = st.builds(
    h.Behaviour, _parts, _parts, st.sampled_from((0.0, 0.02)), _parts, st.sampled_from((None, 7))
)
_options = st.fixed_dictionaries(
    {
        "wait_time": st.sampled_from((1, 4, 9)),
        "shutdown_timeout": st.sampled_from((0.0, 5.0, 30.0)),
    },
    optional={
        "visibility_timeout": st.sampled_from((4, 12, 30)),
        "time_limit": st.sampled_from((15.0, 50.0)),
        "acknowledge_within": st.sampled_from((0.0, 0.5)),
    },
)


@st.composite
def histories(draw: Draw) -> h.History:
    """Draws a minute or two in which anything may happen."""
    duration = draw(st.sampled_from((40, 100)))
    tenths = st.integers(0, duration * 10 - 1).map(lambda tenth: tenth / 10)

    def some(what: st.SearchStrategy[h.Event], least: int, most: int) -> list[Any]:
        found: list[Any] = draw(st.lists(st.tuples(tenths, what), min_size=least, max_size=most))
        return found

    events = [*some(_puts, 3, 12), *some(_troubles, 0, 4), *some(_lives, 0, 6)]
    return _possible(
        seed=draw(st.integers(0, 2**16)),
        events=tuple(sorted(events, key=lambda event: event[0])),
        receivers=draw(st.integers(1, 3)),
        on_error=draw(st.sampled_from(_POLICIES)),
        options=draw(_options),
        visibility=draw(st.sampled_from((5, 10, 30))),
        max_receives=draw(st.sampled_from((1, 3, 6, None))),
        keeps=draw(st.sampled_from((None, None, 45.0))),
        behaviour=draw(_behaviours),
        preempt=draw(st.sampled_from((0.0, 0.02, 0.2))),
        duration=float(duration),
        **draw(st.sampled_from(_WAYS)),
    )


def rough_history(number: int) -> h.History:
    """One of those that find bugs soon: slow handlers, bursts, faults of one kind of call.

    Each sixth is one in which nothing fails but handlers, and those take long.
    """
    rng = random.Random(number)
    duration = 90.0

    def when() -> float:
        return rng.uniform(0.5, duration - 1.0)

    is_large, is_calm = number % 8 == 7, number % 6 == 1
    events: list[tuple[float, h.Event]] = []
    for _ in range(8):
        size = rng.randint(100, 700) if is_large else 0
        is_packed = not is_large and rng.random() < 0.3
        events.append((when(), h.Put(rng.randint(2, 4 if is_large else 25), is_packed, size)))
    for operation in rng.sample((*h.OPERATIONS, None), 0 if is_calm else 2):
        kind, rate = rng.choice(h.KINDS), rng.choice((0.3, 1.0))
        if kind == "denied" and rng.random() < 0.7:
            kind = "timeout_after"
        events.append((when(), h.Trouble(kind, rate, rng.choice((5.0, 20.0)), operation)))
    lives: list[h.Event] = [
        *(h.Kill(0) for _ in range(rng.randint(0, 1))),
        *(h.Start() for _ in range(rng.randint(0, 2))),
        *(
            h.Sleep(rng.randrange(3), rng.choice((3.0, 12.0, 40.0)))
            for _ in range(0 if is_calm else 2)
        ),
        *(h.Shutdown(rng.randrange(3), rng.choice((None, None, 2.0))) for _ in range(2)),
    ]
    if rng.random() < 0.3:
        lives.append(h.Timeout(rng.choice((3, 60))))
    events += [(when(), event) for event in lives]
    options: dict[str, Any] = {"wait_time": rng.choice((1, 9)), "shutdown_timeout": 10.0}
    if rng.random() < 0.3:
        options["visibility_timeout"] = rng.choice((6, 15))
    if rng.random() < 0.3:
        options["time_limit"] = 20.0
    if is_large:
        options["max_held_bytes"] = 1 << 20
    return _possible(
        seed=number,
        events=tuple(sorted(events, key=lambda event: event[0])),
        receivers=rng.randint(1, 3),
        on_error=_POLICIES[number % len(_POLICIES)],
        options=options,
        visibility=5 if is_calm else rng.choice((5, 10, 20)),
        max_receives=rng.choice((3, 6, None)),
        keeps=rng.choice((None, None, None, 50.0)),
        behaviour=h.Behaviour(
            fail=rng.choice((0.0, 0.1)),
            slow=0.9 if is_calm else rng.choice((0.05, 0.3)),
            hang=rng.choice((0.0, 0.02)),
            by_hand=rng.choice((0.0, 0.1)),
            poison=rng.choice((None, 9)),
        ),
        preempt=rng.choice((0.0, 0.05)),
        duration=duration,
        **_WAYS[number % len(_WAYS)],
    )


def _possible(behaviour: h.Behaviour, **given: Any) -> h.History:
    """Without records that come for ever."""
    is_endless = given["max_receives"] is None and given["on_error"] in {"retry", "stop"}
    if is_endless and behaviour.poison is not None:
        given["max_receives"] = 6
    return h.History(behaviour=behaviour, **given)
