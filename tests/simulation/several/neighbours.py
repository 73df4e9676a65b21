"""Invariants of streams that have nothing to do with what is wrong with another."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation import history as h
from tests.simulation.several.world import Life, SeveralWorld

_SOON = 45.0
"""Seconds within which records are given while nothing but another stream is disturbed. A lease may
change hands meanwhile, as the number of leases changes with the other."""
_OPENING = 30.0
"""Seconds beyond the question for the streams within which a new one is read."""
_RESHARD = 60.0
_TWO_PAUSES = 3.0
"""Seconds that two renewals may be apart beyond their interval."""


def _is_elses(event: h.Event, number: int) -> bool:
    """True if an event disturbs other streams at most."""
    if isinstance(event, h.Trouble):
        return event.stream is not None and event.stream != number
    if isinstance(event, h.On):
        return event.stream != number or isinstance(event.event, h.Put)
    if isinstance(event, h.Anew):
        return event.stream != number
    return isinstance(event, h.Track | h.TrackerFails)


def _calm(world: SeveralWorld, number: int) -> list[tuple[float, float]]:
    """The times in which nothing disturbs a stream, or could have before."""
    recovery = 3 * world.options.failover_time
    began = max(world.fleet.started_at.values(), default=0.0) + recovery + world.history.ask_every
    disturbed = [(0.0, min(began, world.history.duration))]
    for at, event in world.history.events:
        if not _is_elses(event, number):
            seconds = float(getattr(event, "seconds", 0.0))
            inner = event.event if isinstance(event, h.On) else None
            seconds += float(getattr(inner, "seconds", 0.0))
            seconds += 0.0 if inner is None else _RESHARD
            disturbed.append((at, at + seconds + recovery))
    disturbed += [
        (entry.at, entry.at + recovery)
        for entry in world.journal.entries
        if entry.what == "worker failed"
    ]
    disturbed.append((world.history.duration, float("inf")))
    calm, since = [], 0.0
    for begin, end in sorted(disturbed):
        if begin > since:
            calm.append((since, begin))
        since = max(since, end)
    return calm


def _is_plain(world: SeveralWorld) -> bool:
    """True if no record processor is slow or fails."""
    usual = h.Behaviour()
    behaviour = world.history.behaviour
    return (behaviour.slow, behaviour.hang, behaviour.fail, behaviour.fail_elsewhere) == (
        usual.slow,
        usual.hang,
        usual.fail,
        usual.fail_elsewhere,
    ) and behaviour.poison is None


def _tracked_spans(world: SeveralWorld, life: Life) -> Iterator[tuple[float, float]]:
    """The times in which the tracker names a stream and the stream is there."""
    changes = [*world.tracked_at, (float("inf"), ())]
    end = float("inf") if life.ended_at is None else life.ended_at
    since: float | None = None
    for at, numbers in changes:
        if life.number in numbers and since is None:
            since = at
        elif life.number not in numbers and since is not None:
            yield max(since, life.created_at), min(at, end)
            since = None


def other_streams_are_read_in_time(world: SeveralWorld) -> Iterator[str]:
    """While only other streams fail, come and go, a stream is opened and its records are given."""
    if not _is_plain(world) or world.options.skip_older_than is not None:
        return
    if world.history.initial_position != "trim_horizon":
        return
    for life in world.all_lives():
        calm = _calm(world, life.number)
        spans = list(_tracked_spans(world, life))
        for shard, log in life.producer.logs.items():
            handed = world.journal.handed.get(life.prefix + shard, {})
            for place, data, at in zip(log.places, log.data, log.put_at, strict=True):
                wait = next(
                    (
                        max(at, since + world.history.ask_every + _OPENING)
                        for since, until in spans
                        if since <= at and at + world.history.ask_every + _OPENING + _SOON < until
                    ),
                    None,
                )
                if wait is None or not any(a <= at and wait + _SOON <= b for a, b in calm):
                    continue
                if handed.get(place, float("inf")) > wait + _SOON:
                    yield f"{data} of {shard} was not given within {_SOON} s of {wait:.3f}"
                    return


def leases_are_renewed_in_time(world: SeveralWorld) -> Iterator[str]:
    """While only other streams fail, come and go, the owner of a lease renews it in time."""
    most = world.options.renew_interval + _TWO_PAUSES
    calm = {number: _calm(world, number) for number in range(len(world.lives))}
    last: dict[str, tuple[float, str]] = {}
    for write, _, after in world.leases():
        life = world.life_of(write.key)
        if life is None:
            continue
        owner = None if after is None or after.is_finished else after.actual_owner
        known = last.pop(write.key, None)
        if known is not None and write.at - known[0] > most:
            begin, end = known[0], write.at
            if any(a <= begin and end <= b for a, b in calm[life.number]):
                yield (f"{known[1]} did not renew {write.key} from {begin:.3f} until {end:.3f}")
                return
        # Who is given a lease looks for it after a while.
        is_own = write.by is not None and world.fleet.worker_ids.get(write.by) == owner
        if owner is not None and is_own:
            last[write.key] = write.at, owner
