"""Rough histories, by number: drawn to find bugs within few histories."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

from tests.simulation import history as h
from tests.simulation.histories import LITTLE, QUICK, closed, in_order
from tests.simulation.network import OVERLOADED

_DURATION = 120.0
_ODD, _UNNAMED, _EARLY = 50, 3, 8
"""Every 50th history has a Kinesis that names no children, every 50th one that begins early."""
_SERVERS: tuple[h.TableServer, ...] = ("DynamoDB", "dynalite", "moto", "older")


def rough_history(number: int) -> h.History:
    """A history with paused workers, lost answers, failing processors, and one of `_THEMES`."""
    history = _THEMES[number % len(_THEMES)](plain_history(number), random.Random(-1 - number))
    # Each fourth time with little memory, so that shards wait for one another.
    rounds = number // len(_THEMES)
    return replace(history, memory=LITTLE[rounds // 4 % 2]) if rounds % 4 == 3 else history


def plain_history(number: int) -> h.History:
    """The same history without the theme."""
    rng = random.Random(number)
    when = functools.partial(rng.uniform, 1.0, _DURATION - 1.0)
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
        rate, seconds = rng.choice((0.1, 0.3, 0.6)), rng.uniform(5.0, 40.0)
        events.append((when(), h.Trouble(kind, rate, seconds, service)))  # type: ignore[arg-type]
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
        events=in_order([e for e in events if e[0] < _DURATION], _DURATION),
        behaviour=behaviour,
        options=QUICK,
        names_children=number % _ODD != _UNNAMED,
        begins_early=3 * (number % _ODD == _EARLY),
        duration=_DURATION,
    )


def _plain(history: h.History, rng: random.Random) -> h.History:
    del rng
    return history


def _packed(history: h.History, rng: random.Random) -> h.History:
    """Aggregates, checkpoints within them, and explicit hash keys of other shards.

    In lease tables of several servers.
    """
    events = tuple(
        (at, _packed_put(event, rng.choice((0, 3, 6)), at) if isinstance(event, h.Put) else event)
        for at, event in history.events
    )
    behaviour = replace(history.behaviour, odd_checkpoint=0.5, prepare=rng.choice((0.0, 0.3)))
    options = {**QUICK, "max_records": rng.choice((1, 10_000)), "hash_range_filter": True}
    if history.seed % 2 == 0:
        behaviour = replace(behaviour, defers=0.05)
    server = rng.choice(_SERVERS)
    return replace(
        history, events=events, behaviour=behaviour, options=options, table_server=server
    )


def _packed_put(event: h.Put, packed: int, at: float) -> h.Put:
    """Some without a partition key, and some with an explicit hash key."""
    key = None if event.key == 7 else event.key
    return h.Put(key, event.count, packed, at % 1.0 if event.key == 6 else None)


def _late(history: h.History, rng: random.Random) -> h.History:
    """Records and reshards from before the application, which is not to begin with them."""
    events = [(at + 20.0 if isinstance(e, h.Start) else at, e) for at, e in history.events]
    return replace(
        history,
        events=in_order([each for each in events if each[0] < _DURATION], _DURATION),
        initial_position=rng.choice(("latest", "latest", 10.0)),
    )


def _skipping(history: h.History, rng: random.Random) -> h.History:
    """``skip_older_than`` on machines with wrong clocks."""
    jumps = [
        (rng.uniform(5.0, 60.0), h.ClockJump(worker, rng.choice((-900.0, 900.0))))
        for worker in range(2)
    ]
    return replace(
        history,
        events=in_order([*history.events, *jumps], _DURATION),
        options={**QUICK, "skip_older_than": rng.choice((0, 5.0, 15.0))},
    )


def _giving_up(history: h.History, rng: random.Random) -> h.History:
    policy: Any = rng.choice(
        ("skip", "dead letter", "retry, then skip", "retry, then dead letter", "stop")
    )
    poison = None if policy == "stop" else rng.randrange(8)
    behaviour = replace(history.behaviour, fail_elsewhere=rng.choice((0.0, 0.3)), poison=poison)
    return replace(history, on_error=policy, behaviour=behaviour)


def _moved(history: h.History, rng: random.Random) -> h.History:
    """Resets by operators and processors, and foreign writes to the table."""
    at = functools.partial(rng.uniform, 5.0, _DURATION - 5.0)
    more: list[tuple[float, h.Event]] = [
        (at(), h.Reset(rng.choice(("LATEST", "TRIM_HORIZON", 20.0))))
        for _ in range(rng.randint(0, 2))
    ]
    kinds: Any = ("take", "evict", "note", "delete")
    more += [(at(), h.Foreign(rng.choice(kinds), rng.random())) for _ in range(rng.randint(0, 3))]
    behaviour = replace(history.behaviour, reset=rng.choice((0.0, 0.02)))
    events = in_order([*history.events, *more], _DURATION)
    return replace(history, events=events, behaviour=behaviour)


def _closed(history: h.History, rng: random.Random) -> h.History:
    hours = rng.choice((3, 25, 25))
    return closed(history, rng.uniform(20.0, 100.0), hours * 3600.0, graceful=rng.random() < 0.5)


def _crowded(history: h.History, rng: random.Random) -> h.History:
    """Many shards, and processes that share a worker id."""
    more: list[tuple[float, h.Event]] = [
        (rng.uniform(5.0, 40.0), h.Storm(20, 30.0)),
        (2.0, h.Start(2)),
    ]
    for worker in range(2):
        at = rng.uniform(30.0, 90.0)
        # The one that sleeps finds itself with or without its leases.
        more += [(at, h.Pause(worker, rng.choice((9.0, 9.0, 25.0)))), (at + 1.5, h.Twin(worker))]
    events = in_order([*history.events, *more], _DURATION)
    return replace(history, events=events, list_page=rng.choice((3, 1000)))


def _failing_batches(history: h.History, rng: random.Random) -> h.History:
    """Many shards whose shared renewals fail for single leases, only as batches, or by overload."""
    more: list[tuple[float, h.Event]] = [(rng.uniform(5.0, 20.0), h.Storm(10, 10.0))]
    for _ in range(2):
        rate, seconds = rng.choice((0.1, 0.5)), rng.uniform(10.0, 40.0)
        trouble = h.Trouble("statements", rate, seconds, "dynamodb")
        more.append((rng.uniform(20.0, 90.0), trouble))
    if rng.random() < 0.5:
        more.append((rng.uniform(20.0, 90.0), h.Trouble("batches", 1.0, 20.0, "dynamodb")))
    if history.seed % 4 == 1:
        more.append((rng.uniform(10.0, 40.0), h.Trouble(OVERLOADED, 1.0, 75.0, "dynamodb")))
    return replace(history, events=in_order([*history.events, *more], _DURATION))


_THEMES = (
    _plain,
    _packed,
    _failing_batches,
    _late,
    _skipping,
    _giving_up,
    _moved,
    _closed,
    _crowded,
)
