"""Records and failures of workers, which they report and the lease table does not hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from sparkinesis.status import Failure
from sparkinesis.worker.reporting.failures import merge

if TYPE_CHECKING:
    from sparkinesis.status import FleetStatus

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reported:
    """What all workers that were asked say at one moment."""

    worker_rates: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Records per second by worker id; None if not known yet."""
    shard_rates: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """Records per second by lease key."""
    worker_notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    failures: tuple[Failure, ...] = ()
    """The latest last."""
    messages: tuple[str, ...] = ()
    """Most important first."""


NOTHING_REPORTED = Reported()


def of_fleet(status: FleetStatus) -> Reported:
    """Return what a fleet's driver knows of its workers."""
    messages = [f"The fleet has failed: {status.error}"] if status.error else []
    if status.waiting:
        messages.append(f"{status.waiting} of {status.wanted} workers wait for Spark to start.")
    messages += [f"{one.name}: {one.problem}" for one in status.streams if one.problem]
    return Reported(
        {one.worker_id: one.records_per_second for one in status.workers},
        {one.lease: one.records_per_second for one in status.shards},
        {one.worker_id: one.problem or one.state.value for one in status.workers},
        status.failures,
        (*messages, *reversed(status.notes)),
    )


class StatusShard(msgspec.Struct, frozen=True):
    """One shard of a worker's ``/status``."""

    lease: str
    records: int = 0


class StatusStream(msgspec.Struct, frozen=True):
    """One stream of a worker's ``/status``."""

    stream: str
    problem: str | None = None


class WorkerSays(msgspec.Struct, frozen=True):
    """A worker's ``/status``; it may have more, which the page does not show."""

    worker: str
    application: str = ""
    shards: tuple[StatusShard, ...] = ()
    streams: tuple[StatusStream, ...] = ()
    failures: tuple[Failure, ...] = ()
    problem: str | None = None


def read_status(text: bytes) -> WorkerSays:
    """Read the answer of ``/status``. Raises ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=WorkerSays)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer is no worker's status: {error}") from None


def shard_rates(
    before: Mapping[str, int], after: Mapping[str, int], seconds: float
) -> dict[str, float]:
    """Return records per second by lease key, by two counts of a worker's records.

    A count that fell began anew: the worker lost the shard, and took it again.
    """
    if seconds <= 0:
        return {}
    return {
        key: (records - before[key] if records >= before[key] else records) / seconds
        for key, records in after.items()
        if key in before
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of asking one worker."""

    url: str
    says: WorkerSays | None
    """None: it did not answer."""
    rates: Mapping[str, float] | None = None
    """Records per second by lease key; None as long as it has answered once only."""
    error: str = ""


def of_answers(answers: Iterable[Answer]) -> Reported:
    """Return what workers said that were asked one by one."""
    workers: dict[str, float | None] = {}
    shards: dict[str, float] = {}
    notes: dict[str, str] = {}
    failures = []
    messages = []
    for one in answers:
        if one.says is None:
            messages.append(f"The worker at {one.url} does not tell its status: {one.error}.")
            continue
        says = one.says
        workers[says.worker] = None if one.rates is None else sum(one.rates.values())
        shards.update(one.rates or {})
        if says.problem:
            notes[says.worker] = says.problem
            messages.append(f"{says.worker}: {says.problem}")
        messages += [f"{says.worker}: {each.problem}" for each in says.streams if each.problem]
        failures.append(says.failures)
    return Reported(workers, shards, notes, merge(failures), tuple(dict.fromkeys(messages)))
