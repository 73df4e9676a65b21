"""The checks of the doctor in their order, and those of this machine.

A check is skipped if what it needs was not found. Of the machine: the versions of the installed
software, the region, and whose credentials are used.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.application_checks import (
    dynamodb_of,
    progress_checks,
    table_checks,
    worker_checks,
)
from sparkinesis.monitor.doctor.judge import Finding, State, note, ok, problem, problem_of
from sparkinesis.monitor.doctor.record_checks import record_checks
from sparkinesis.monitor.doctor.service import Service, StreamChecks, kinesis, reach
from sparkinesis.public import __version__
from sparkinesis.stream.address import StreamAddress, StreamMark, is_loopback
from sparkinesis.stream.calls.caller import CallTarget
from sparkinesis.stream.calls.default_region import default_region
from sparkinesis.stream.calls.explain import explain, explain_place, unexplained, words
from sparkinesis.stream.calls.retry import is_retryable
from sparkinesis.stream.calls.session import open_session

_JAVA = re.compile(r'version "(?:1\.)?([0-9]+)')
_CONFIG = Config(retries={"max_attempts": 0}, connect_timeout=5, read_timeout=5)


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
    """The addresses at which its workers serve their state."""
    records: int = 0
    """The most records of each stream that are read to see what producers do to them."""


def examine(patient: Patient) -> Iterator[Finding]:
    """Yield the findings, as they are made. Nothing is written."""
    yield from versions()
    first = patient.streams[0]
    where = region(first, None if first.arn is None else "stream")
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
        if patient.records and checks.shard_ids:
            yield from record_checks(address, patient.records)
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


# This machine


def versions() -> list[Finding]:
    """Return the findings about the installed software."""
    pyspark = _installed("pyspark")
    return [software(), judge.spark(pyspark, java() if pyspark else None)]


def software() -> Finding:
    """Return the versions of what each application needs."""
    boto = f"boto3 {_installed('boto3')}"
    return ok("versions", f"sparkinesis {__version__}, Python {platform.python_version()}, {boto}")


def _installed(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def java() -> int | None:
    """Return the feature version of Spark's Java; 0 if it is unknown; None without Java."""
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else shutil.which("java")
    if command is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [command, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA.search(said.stderr)
    return int(found[1]) if found else 0


def region(address: CallTarget, of_arn: str | None = None) -> Finding:
    """Return the region, and where it comes from. of_arn: what has an ARN with the region."""
    if address.region is not None:
        source = f"of the {of_arn}'s ARN" if of_arn else "as given by --region"
        return ok("region", f"{address.region}, {source}")
    found, source = default_region(
        address.credentials.profile, is_local=is_loopback(address.endpoint)
    )
    if found is None:
        return problem(
            "region",
            f"no region is set: {source}",
            "Give --region, or set the environment variable AWS_REGION.",
        )
    return ok("region", f"{found}, {source}")


def credentials(address: CallTarget) -> list[Finding]:
    """Find the credentials, and ask STS whose they are. No secret is shown."""
    is_local = is_loopback(address.endpoint)
    try:
        session = open_session(address.credentials, address.region, address.endpoint)
        found = session.get_credentials()
        if found is None:
            return [
                problem(
                    "credentials",
                    "no AWS credentials were found",
                    "Provide an instance or pod role, a profile in ~/.aws, or the environment "
                    "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
                )
            ]
        found.get_frozen_credentials()
    except (ClientError, BotoCoreError) as error:
        about = explain_place(
            error, "a service", f"{address}", address.credentials, "region and the endpoint"
        )
        return [problem_of("credentials", about or unexplained(error, "a service", f"{address}"))]
    method = f"found by {found.method}" if found.method else "found"
    if is_local and found.method == "explicit":
        method = "none are needed: a local endpoint accepts all"
    if address.endpoint is not None:
        return [ok("credentials", method)]
    return [_identity(session, method, address)]


def _identity(session: Any, method: str, address: CallTarget) -> Finding:
    region = address.region or default_region(address.credentials.profile, is_local=False)[0]
    try:
        sts = session.create_client(
            "sts",
            region_name=region,
            endpoint_url=address.credentials.sts_endpoint,
            config=_CONFIG,
        )
        answer = sts.get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        if isinstance(error, ClientError) and not is_retryable(error):
            return problem(
                "credentials",
                f"{method}, and STS does not accept them: {words(error)}",
                "Renew them (aws sso login, a new session token), or correct the profile or the "
                "environment variables.",
            )
        return note(
            "credentials",
            f"{method}; whose they are is not known, as STS does not answer: {words(error)}",
        )
    return ok("credentials", f"{method}: {answer['Arn']}")
