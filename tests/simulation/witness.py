"""A witness of whole histories: one hash of all that a machine outside could tell apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.simulation.dynamodb import LeaseTableModel
from tests.simulation.journal import Journal
from tests.simulation.kinesis import KinesisClient, request_body
from tests.simulation.network import Network
from tests.simulation.query.world import World as QueryWorld
from tests.simulation.rounds import Round, draw
from tests.simulation.scheduler import Scheduler
from tests.simulation.subjects import SUBJECTS


def _of_task(scheduler: Scheduler) -> object:
    task = scheduler.current
    return scheduler.now, task and (task.process.name, task.name)


_SEEN: tuple[tuple[type, str, Callable[..., object]], ...] = (
    (
        Network,
        "call",
        lambda network, *args, stream="", timeout: (
            _of_task(network._scheduler),
            args[:2],
            stream,
            timeout,
        ),
    ),
    (
        Network,
        "poll",
        lambda network, *args, timeout: (_of_task(network._scheduler), args[:2], timeout),
    ),
    (KinesisClient, "serve", lambda _, operation, request: (operation, request_body(request))),
    (LeaseTableModel, "serve", lambda _, operation, request, *more: (operation, request, more)),
    (LeaseTableModel, "put", lambda table, *write: (table._clock(), write, table._by)),
    (Journal, "write", lambda journal, *entry: (_of_task(journal.scheduler), entry)),
    (QueryWorld, "note", lambda world, text: (_of_task(world.scheduler), text)),
    # Whatever took another way has drawn, or waited, another number of times.
    (
        Scheduler,
        "end",
        lambda scheduler: (scheduler.now, scheduler._count, scheduler.rng.getstate()),
    ),
)
"""The calls to hash, and what of them: each call to a service with its task and its arguments, each
write to a lease table, each entry of a journal, and the chance that was left at the end."""


@contextmanager
def witness() -> Iterator[Callable[[], str]]:
    """Hashes what happens during the block; the function returns the hash so far."""
    told = hashlib.sha256()

    def noting(method: Callable[..., Any], what: Callable[..., object]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            told.update(repr(what(*args, **named)).encode())
            return method(*args, **named)

        return call

    with ExitStack() as stack:
        for owner, name, what in _SEEN:
            method = noting(getattr(owner, name), what)
            stack.enter_context(mock.patch.object(owner, name, method))
        yield told.hexdigest


def seen(subject: Any, history: Any) -> str:
    """Plays a history; returns the hash of all of it."""
    with witness() as told:
        outcome = subject.play(history)
    return hashlib.sha256(f"{outcome} {told()}".encode()).hexdigest()


def seen_of_round(this: Round) -> list[str]:
    """Plays a round as a run does; returns the hash of each history."""
    subject = next(each for each in SUBJECTS if each.name == this.subject)
    hashes: list[str] = []
    draw(this, subject.histories(), lambda history: hashes.append(seen(subject, history)))
    return hashes
