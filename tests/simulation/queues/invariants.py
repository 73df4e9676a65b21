"""Invariants of applications that consume a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from sparkinesis.errors import AccessDeniedError
from sparkinesis.queue.handling import _NamedError
from tests.simulation.queues.handler import SimulatedFailureError
from tests.simulation.queues.service import Delivery
from tests.simulation.queues.world import Receiver, World
from tests.simulation.rules import broken, no_thread_ends_by_an_error

_SLOW = 1.0
"""Seconds after which the answer to a receive may come too late."""


def nothing_is_lost(world: World) -> Iterator[str]:
    """Each user record is handled, or a dead letter, or given up, or expired; nothing is left.

    A policy gives up only a record whose handler has failed.
    """
    journal, service = world.journal, world.service
    failed = {
        run.name
        for run in journal.runs
        if run.outcome == "failed" and world.gives_up(run.record.receive_count)
    }
    by_hand = {run.name for run in journal.runs if run.by_hand == "ack"}
    settled = journal.done | journal.dead | world.dead_letters | failed | by_hand
    for name in service.put_at:
        if name not in settled and not service.has_expired(name):
            yield f"{name} was neither handled nor given up"
    if world.settled_after is None:
        yield f"it is not in order {world.history.patience:.0f} s after the last fault"


def workers_fail_for_a_reason(world: World) -> Iterator[str]:
    for receiver in world.receivers:
        error = receiver.failure
        met = {kind for _, _, kind in world.faults.get(receiver.process, ())}
        is_denied = isinstance(error, AccessDeniedError) and "denied" in met
        is_failure = isinstance(error, SimulatedFailureError | _NamedError)
        is_stop = is_failure and world.history.on_error == "stop"
        if error is not None and not (is_denied or is_stop):
            yield f"{receiver.process} ended by {error!r}"


def extended_or_let_go(world: World) -> Iterator[str]:
    """A hold ends only for a reason; a handler is told then (`Journal`), and it is counted."""
    receivers = {one.process: one for one in world.receivers}
    for delivery in world.service.deliveries.values():
        receiver = receivers[delivery.receive.process]
        if delivery.end is None and not _has_reason(world, receiver, delivery):
            yield (
                f"the hold of {delivery.names} by {receiver.process}, received at "
                f"{delivery.at:.3f}, was not extended at {delivery.until:.3f}"
            )
    told: Counter[str] = Counter()
    for held, process in {
        run.record._held: run.process for run in world.journal.runs if run.was_told
    }.items():
        told[process.name] += not held.is_settling
    for name, count in told.items():
        if world.counts.sum(name, "queue.holds.lost") < count:
            yield f"{name} has let go {count} records that ran, and counts fewer"
    for receiver in world.receivers:
        process = receiver.process
        counted = world.counts.sum(process.name, "queue.holds.lost")
        lost = sum(
            one.end is None or any(map(world.service.has_expired, one.names))
            for one in world.in_hand_of(process)
        )
        is_sure = not world.faults.get(process) and not world.slept(process, 0.0, float("inf"))
        if is_sure and counted > lost:
            yield f"{process} counts {counted:.0f} holds as lost, and has lost {lost}"


def _has_reason(world: World, receiver: Receiver, delivery: Delivery) -> bool:
    process, until = receiver.process, delivery.until
    visibility, sent = receiver.visibility, delivery.receive.sent
    since = until - visibility
    if delivery.arrived is None or until > world.scheduler.now:
        return True  # nobody has heard of it; or it lasts
    if world.died.get(process, until) <= until and process.is_killed:
        return True
    options = world.options
    return (
        delivery.arrived - delivery.at > _SLOW
        or world.slept(process, since, until)
        or world.is_in_doubt(process, since, until)
        or any(kind == "denied" for _, _, kind in world.faults.get(process, ()))
        or not options.extend
        or until >= sent + options.time_limit
        or any(world.service.has_expired(name, until) for name in delivery.names)
    )


def shutdown_is_bounded(world: World) -> Iterator[str]:
    """A shutdown ends in time, and leaves nothing hidden that does not run (`World`)."""
    for receiver in world.receivers:
        ended = receiver.ended
        if ended is None and receiver.process.is_killed:
            continue
        if ended is None:
            yield f"{receiver.process}, asked at {receiver.asked}, does not end"
        elif ended > receiver.ends_by:
            yield f"{receiver.process} ends {ended - receiver.ends_by:.1f} s too late"


_RULES: tuple[Callable[[World], Iterator[str]], ...] = (
    no_thread_ends_by_an_error,
    workers_fail_for_a_reason,
    nothing_is_lost,
    extended_or_let_go,
    shutdown_is_bounded,
)


def check(world: World) -> list[str]:
    """All that is wrong, by the invariants' names."""
    return [*world.journal.wrong, *broken(_RULES, world)]
