"""Histories of queries: drawn by hypothesis, which makes simple one that fails; and rough ones."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.simulation.histories import Draw
from tests.simulation.network import FAULTS
from tests.simulation.query import history as h

HOUR = 3600.0
FAN_OUT = {"consumerMode": "efo", "consumerName": "query"}
_EVENTS = (5, 20, 1_048_576)
"""Maximum bytes of an event: small ones split a few records into several events."""
_EPOCH = "2023-11-14T22:13:%02dZ"
"""The beginning of every world is at 22:13:20."""

_places = st.integers(0, 15).map(lambda sixteenth: sixteenth / 16)
_rates = st.sampled_from((0.02, 0.1, 0.3, 1.0))
_which = st.integers(0, 1)

_puts = st.builds(h.Put, st.integers(0, 5), st.integers(1, 8), st.booleans(), stream=_which)
_skewed = st.builds(
    h.Put,
    st.integers(0, 5),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from((0.0, -20.0, -3.0, 0.5, 15.0)),
    _which,
)
_reshards = st.builds(h.Split, _places, _which) | st.builds(h.Merge, _places, _which)
_changes = st.sampled_from(
    (
        (),
        (("maxRecordsPerTrigger", "7"),),
        (("maxRecordsPerTrigger", "1000000"),),
        (("failOnDataLoss", "false"),),
        (("failOnDataLoss", "true"),),
        (("initialPosition", "latest"),),
        (("initialPosition", "trim_horizon"),),
        (("streamName", "flights,trains"),),
    )
)
_age_changes = st.just((("skipOlderThan", "30 seconds"),))
_crashes = (
    st.builds(h.CrashDriver, st.sampled_from((0.0, 1.0, 20.0)))
    | st.builds(h.CrashExecutor, _which)
    | st.builds(h.Pause, st.sampled_from((1.0, 11.0, 40.0)), st.none() | _which)
    | st.builds(h.ClockJump, st.sampled_from((0.0, -7200.0, -1.5, 30.0, 90_000.0)))
)
_losses = st.builds(h.Retention, st.sampled_from((24, 48, 72)), _which) | st.builds(
    h.Recreate, _which
)
_late_replays = st.builds(h.CrashDriver, st.sampled_from((1.0, 5 * HOUR, 25 * HOUR)), st.just(True))
_stops = st.sampled_from((1.0, 15.0, 60.0))
_lives = _crashes | st.builds(h.Stop, _stops, _changes | _age_changes)
_lives_once = _crashes | st.builds(h.Stop, _stops, _changes)
_troubles = st.builds(
    h.Trouble,
    st.sampled_from(FAULTS),
    _rates,
    st.integers(1, 40).map(float),
    st.sampled_from((None, "driver", "executor")),
) | st.builds(h.Lag, st.sampled_from((1.0, 5.0, 15.0)), st.integers(5, 30).map(float))

_limits = st.sampled_from(
    (
        {},
        {},
        {"maxRecordsPerTrigger": "3"},
        {"maxRecordsPerTrigger": "20"},
        {"maxRecordsPerTrigger": "20", "maxShardDrift": "10 seconds"},
        {"maxBytesPerTrigger": "200b"},
    )
)
_ages = st.sampled_from(
    (
        {},
        {},
        {},
        {"skipOlderThan": "0"},
        {"skipOlderThan": "30 seconds"},
        {"skipOlderThan": "1 hour"},
    )
)
_others = st.sampled_from(
    (
        {},
        {},
        {"failOnDataLoss": "false"},
        {"deaggregate": "false"},
        {"maxRecordsPerFetch": "2"},
        {"minFetchPeriod": "0ms"},
        FAN_OUT,
        FAN_OUT,
    )
)
_initial = st.sampled_from(
    ("trim_horizon", "trim_horizon", "latest", _EPOCH % 25, _EPOCH % 20, _EPOCH % 45)
)
_tasks = st.builds(
    h.Tasks,
    st.sampled_from((0.0, 0.05, 0.3)),
    st.sampled_from((0.0, 0.1, 0.3)),
    st.booleans(),
)
_triggers = st.builds(
    h.Trigger,
    st.sampled_from(("processing", "processing", "processing", "available now", "once")),
    st.sampled_from((3.0, 6.0, 15.0)),
)


@st.composite
def histories(draw: Draw) -> h.History:
    """Draws one to three minutes with many events, and maybe hours with few."""
    active: int = draw(st.sampled_from((60, 120)))
    tenths = st.integers(0, active * 10 - 1).map(lambda tenth: tenth / 10)
    gap_at: float = draw(tenths)
    gap: float = draw(st.sampled_from((0.0, 0.0, 0.0, 5 * HOUR, 20 * HOUR, 25 * HOUR, 60 * HOUR)))
    times = tenths.map(lambda at: at if at < gap_at else at + gap)
    within = st.integers(0, 99).map(lambda part: gap_at + gap * part / 100)

    def some(what: st.SearchStrategy[h.Event], when: Any, least: int, most: int) -> list[Any]:
        found: list[Any] = draw(st.lists(st.tuples(when, what), min_size=least, max_size=most))
        return found

    puts = draw(st.sampled_from((_puts, _puts, _skewed)))
    trigger = draw(_triggers)
    is_once = trigger.kind == "once"
    waits = 0.0
    lives = _lives_once if is_once else _lives
    events = some(puts, times, 5, 30)
    events += some(_reshards, times, 0, 6)
    events += some(lives, times, 0, 5)
    events += some(_troubles, times, 0, 4)
    if gap:
        # Nothing plans for hours: either nobody is there, or nobody is awake.
        # Or it plans seldom, all the time.
        rest = draw(st.sampled_from((h.Stop(gap), h.Stop(gap), h.Pause(gap), None)))
        if rest is None:
            trigger = h.Trigger(trigger.kind, 3600.0)
        else:
            events += [(gap_at, rest)]
        events += some(puts, within, 0, 8)
        events += some(_reshards, within, 0, 4)
        events += some(_losses, within, 0, 2)
        late = some(_late_replays, st.just(gap_at + gap), 0, 1)
        events += late
        waits = sum(crash.seconds for _, crash in late)
        if waits:
            # Where no batch was planned, nothing goes on for hours either.
            events.append((active + gap, h.Stop(waits)))
    return h.History(
        seed=draw(st.integers(0, 2**16)),
        shards=tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))),
        events=tuple(sorted(events, key=lambda event: event[0])),
        options={
            "initialPosition": draw(_initial),
            **draw(_limits),
            # The one batch of each run would be the jump over what is old.
            **({} if is_once else draw(_ages)),
            **draw(_others),
        },
        trigger=trigger,
        tasks=draw(_tasks),
        begins=draw(st.sampled_from((0.0, 10.0, 40.0))),
        preempt=draw(st.sampled_from((0.0, 0.02, 0.2))),
        empty_pages=draw(st.sampled_from((0, 2, 7))),
        event_bytes=draw(st.sampled_from(_EVENTS)),
        duration=active + gap + waits + 1.0,
    )


def rough_history(number: int) -> h.History:
    """One of those that find bugs soon: reshards, crashes, limits, long rests, wrong clocks.

    Of each six, two read by enhanced fan-out, and in one records are removed before they are read.
    """
    if number % 6 == 5:
        return _losing_history(number)
    history = _crowded_history(number)
    return subscribing(history) if number % 6 in {2, 4} else history


def subscribing(history: h.History) -> h.History:
    """The same history of a query that reads by enhanced fan-out."""
    options = {**history.options, **FAN_OUT}
    return replace(history, options=options, event_bytes=_EVENTS[history.seed // 6 % 3])


def _crowded_history(number: int) -> h.History:
    rng = random.Random(number)
    active = 100.0
    rests = rng.random() < 0.4
    rest_at, rest = rng.uniform(30.0, 60.0), rng.choice((8.0, 30.0, 60.0)) * HOUR

    def when() -> float:
        at = rng.uniform(0.5, active - 1.0)
        return at + rest if rests and at > rest_at else at

    streams = rng.choice((1, 1, 2))
    some_stream = functools.partial(rng.randrange, streams)
    events: list[tuple[float, h.Event]] = []
    for _ in range(40):
        put = h.Put(rng.randrange(5), rng.randint(1, 5), rng.random() < 0.2, stream=some_stream())
        events.append((when(), put))
    events += [(when(), h.Split(rng.random(), some_stream())) for _ in range(rng.randint(1, 3))]
    events += [(when(), h.Merge(rng.random(), some_stream())) for _ in range(rng.randint(1, 3))]
    events += [(when(), h.CrashDriver(1.0)) for _ in range(rng.randint(0, 2))]
    events += [(when(), h.CrashExecutor(rng.randrange(2))) for _ in range(rng.randint(0, 1))]
    if rng.random() < 0.3:
        events.append((0.1, h.ClockJump(rng.choice((-7200.0, 90.0)))))
    if rng.random() < 0.3:
        events += [(when(), h.Lag(10.0, 30.0)) for _ in range(2)]
    if rng.random() < 0.6:
        kind = rng.choice(("expired", "expired", "timeout", "throttle", "slow"))
        events.append((when(), h.Trouble(kind, rng.choice((0.1, 0.3)), 30.0)))
    if rng.random() < 0.3:
        events.append((when(), h.Pause(40.0)))
    more = random.Random(-1 - number)
    if more.random() < 0.2:
        # A restart while ListShards does not know yet what the query has read.
        at = when()
        events += [(at, h.Lag(15.0, 30.0)), (at + 1.0, h.Split(more.random()))]
        events += [(at + 2.0, h.Put(key, 2)) for key in range(5)]
        events.append((at + 12.0, h.CrashDriver(0.2)))
    runs_slowly = rests and more.random() < 0.25
    if rests:
        if not runs_slowly:
            events.append((rest_at, h.Stop(rest)))
        for _ in range(rng.randint(0, 6)):
            events.append((rest_at + rest * rng.random(), h.Put(rng.randrange(5), 3)))
    limit = rng.choice((None, None, "4", "12"))
    age = rng.choice((None, None, None, "10 seconds", "1 hour"))
    options = {
        "initialPosition": rng.choice(("trim_horizon", "trim_horizon", "latest")),
        **({} if limit is None else {"maxRecordsPerTrigger": limit}),
        **({} if age is None else {"skipOlderThan": age}),
        **({"maxRecordsPerFetch": "3"} if rng.random() < 0.2 else {}),
    }
    how: Any = rng.choice(("processing", "processing", "available now"))
    trigger = h.Trigger(how, rng.choice((4.0, 10.0)))
    if runs_slowly:
        trigger = h.Trigger("processing", 3600.0)
    return h.History(
        seed=number,
        shards=tuple(rng.randint(1, 3) for _ in range(streams)),
        events=tuple(sorted(events, key=lambda event: event[0])),
        options=options,
        trigger=trigger,
        tasks=h.Tasks(rng.choice((0.0, 0.2)), rng.choice((0.0, 0.2)), rng.random() < 0.5),
        begins=rng.choice((1.0, 20.0)),
        empty_pages=rng.choice((0, 2, 7)),
        duration=active + 15.0 + (rest if rests else 0.0),
    )


def _losing_history(number: int) -> h.History:
    """A query rests for most of a day or longer, and some of what it has not read is removed."""
    rng = random.Random(f"losing {number}")
    how = rng.choice(("replay", "retention", "anew"))
    # In a short rest nothing expires: what is lost then is lost with the stream.
    rest_at, rest = 60.0, {"replay": 20.0, "retention": 30.0, "anew": 10.0}[how] * HOUR
    resumes = rest_at + rest
    events: list[tuple[float, h.Event]] = [(rest_at, h.Stop(rest))]
    # Before the rest, at its beginning, and at its end and behind it.
    spans = (1.0, 50.0), (rest_at + 30.0, rest_at + HOUR), (resumes - 600.0, resumes + 60.0)
    for place, (begin, end) in enumerate(spans):
        # Where few records were put, a shard is still where the query began, at an instant.
        for _ in range(rng.randint(0, 2) if place == 0 else rng.randint(2, 6)):
            put = h.Put(rng.randrange(5), rng.randint(1, 3), rng.random() < 0.2)
            events.append((rng.uniform(begin, end), put))
    for _ in range(rng.randint(0, 2)):
        reshard = rng.choice((h.Split, h.Merge))(rng.random())
        events.append((rest_at + rng.uniform(-30.0, 60.0), reshard))
    begins, duration = 1.0, resumes + 120.0
    initial = rng.choice(("trim_horizon", "latest", _EPOCH % 20))
    if how == "replay":
        # Its start lists no shard of it: they are new, or the batch is the first one.
        events.append((rest_at + 20.0, h.Split(rng.random())))
        initial = rng.choice(("trim_horizon", _EPOCH % 20))
        # One of the batches behind the rest is planned, and read hours later.
        wait = rng.choice((5.0, 5.0, 26.0)) * HOUR
        crash = h.CrashDriver(wait, when_planned=True)
        events.append((resumes + rng.choice((0.0, 0.0, 6.0)), crash))
        begins = rng.choice((1.0, resumes))
        # Where no batch was planned, nothing goes on for hours either.
        events.append((duration, h.Stop(wait)))
        duration += wait + 60.0
    elif how == "retention":
        longer, shorter = h.Retention(rng.choice((48, 72))), h.Retention(24)
        lowered_at, raised_at = (
            rest_at + rest * rng.uniform(*part) for part in ((0, 0.9), (0.9, 1))
        )
        events += [(0.1, longer), (lowered_at, shorter), (raised_at, longer)]
    else:
        events.append((rest_at + rest * rng.uniform(0.1, 0.9), h.Recreate()))
    return h.History(
        seed=number,
        shards=(rng.randint(1, 2),),
        events=tuple(sorted(events, key=lambda event: event[0])),
        options={
            "initialPosition": initial,
            **({} if rng.random() < 0.7 else {"maxRecordsPerTrigger": "4"}),
        },
        trigger=h.Trigger("processing", 4.0),
        begins=begins,
        empty_pages=rng.choice((0, 2)),
        duration=duration,
    )
