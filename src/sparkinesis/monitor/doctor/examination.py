"""The checks of the doctor in order; a check is skipped if what it needs was not found."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError

from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.application import (
    dynamodb_of,
    progress_checks,
    table_checks,
    worker_checks,
)
from sparkinesis.monitor.doctor.judge import Finding, State, problem_of
from sparkinesis.monitor.doctor.machine import credentials, region, versions
from sparkinesis.monitor.doctor.service import Service, reach
from sparkinesis.monitor.doctor.streams import StreamChecks, kinesis
from sparkinesis.stream.address import StreamAddress, StreamMark
from sparkinesis.stream.calls.explain import explain


@dataclass(frozen=True)
class Patient:
    """The application to examine."""

    streams: Sequence[StreamAddress]
    table: LeaseTable
    consumer: str
    """The name of its registered consumer."""
    efo: bool = False
    """It reads by enhanced fan-out."""
    writes: bool = False
    """It also puts records into its streams."""
    is_new: bool = False
    """It has not run yet: a missing lease table is no problem."""
    workers: Sequence[str] = ()
    """The addresses at which workers of it tell their state."""


def examine(patient: Patient) -> Iterator[Finding]:
    """Yield the findings, as they are made. Nothing is written."""
    yield from versions()
    first = patient.streams[0]
    where = region(first)
    yield where
    if where.state is State.PROBLEM:
        return
    found = credentials(first)
    yield from found
    if any(one.state is State.PROBLEM for one in found):
        return
    shards: dict[str, Collection[str]] = {}
    services: list[Service] = []
    mark: StreamMark | None = None
    for address in patient.streams:
        try:
            service = kinesis(address)
        except BotoCoreError as error:
            yield problem_of(
                f"stream {address.name}", explain(error, "Kinesis", address, None, None)
            )
            continue
        reached = reach("Kinesis", service.url)
        if not services or reached.state is State.PROBLEM:
            yield reached
        if reached.state is State.PROBLEM:
            continue
        checks = StreamChecks(service, address)
        yield from checks.checks(patient.consumer, efo=patient.efo, writes=patient.writes)
        shards[address.name] = checks.shard_ids
        mark = checks.mark
        if not services:
            yield from checks.limits()
        services.append(service)
    dynamodb = dynamodb_of(patient.table)
    reached = reach("DynamoDB", dynamodb.url)
    yield reached
    if reached.state is not State.PROBLEM:
        yield from table_checks(dynamodb, patient.table, shards, mark, is_new=patient.is_new)
        readable = [one for one in patient.streams if shards.get(one.name)]
        yield from progress_checks(patient.table, readable)
    for url in patient.workers:
        yield from worker_checks(url, patient.table.name)
    ahead = [one.ahead for one in (*services, dynamodb) if one.ahead is not None]
    if ahead:
        yield judge.clock(max(ahead, key=abs))
