"""Records and failures of workers, which they report and the lease table does not hold.

A fleet hands them on; other workers are asked for their ``/status``, as ``--worker`` names them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec
import urllib3

from sparkinesis.errors import OptionError
from sparkinesis.status import Failure
from sparkinesis.worker.reporting.failures import merge

if TYPE_CHECKING:
    from sparkinesis.status import FleetStatus

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reported:
    """The reports of all workers that were asked, at one moment."""

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
    """Return the reports of a fleet's workers, which its driver has."""
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


class _WorkerSays(msgspec.Struct, frozen=True):
    """A worker's ``/status``; it may have more, which the page does not show."""

    worker: str
    application: str = ""
    shards: tuple[StatusShard, ...] = ()
    streams: tuple[StatusStream, ...] = ()
    failures: tuple[Failure, ...] = ()
    problem: str | None = None


def read_status(text: bytes) -> _WorkerSays:
    """Read the answer of ``/status``. Raises ValueError if it is none."""
    try:
        return msgspec.json.decode(text, type=_WorkerSays)
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
class StatusReply:
    """The answer of one worker, or its error."""

    url: str
    says: _WorkerSays | None
    """None: it did not answer."""
    rates: Mapping[str, float] | None = None
    """Records per second by lease key; None until its second answer."""
    error: str = ""


def of_answers(answers: Iterable[StatusReply]) -> Reported:
    """Return the reports of workers that were asked one by one."""
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


_TIMEOUT = urllib3.Timeout(connect=1.0, read=3.0)
_LONGEST = 32 * 1024 * 1024
"""Bytes of an answer: a worker of 10,000 shards has some 3 MB."""
_AT_ONCE = 16


def status_url(text: str) -> str:
    """Return the address of a worker's ``/status``. Raises `OptionError`.

    ``text``: the worker's address, with or without the path.
    """
    parts = urlsplit(text if "//" in text else f"//{text}", scheme="http")
    try:
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address or parts.path not in {"", "/", "/status"} or "@" in parts.netloc:
        raise OptionError(
            f"--worker is {text!r}; it takes the address at which a worker serves its status, such "
            "as http://127.0.0.1:9400."
        )
    return urlunsplit((parts.scheme, parts.netloc, "/status", "", ""))


class WorkerUrls:
    """Workers that are asked over HTTP. Not for several threads."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._urls = [status_url(url) for url in urls]
        self._clock = clock
        self._http = urllib3.PoolManager(maxsize=2, retries=False, timeout=_TIMEOUT)
        self._before: dict[str, tuple[float, dict[str, int]]] = {}

    def ask(self) -> Reported:
        """Ask all workers at once. Raises nothing: `Reported.messages` says which fail."""
        if not self._urls:
            return of_answers(())
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._urls)), "ask-worker") as pool:
            return of_answers(pool.map(self._ask, self._urls))

    def _ask(self, url: str) -> StatusReply:
        try:
            says = self._get(url)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            self._before.pop(url, None)
            return StatusReply(url, None, error=str(error))
        now, counts = self._clock(), {one.lease: one.records for one in says.shards}
        before = self._before.get(url)
        self._before[url] = now, counts
        rates = None if before is None else shard_rates(before[1], counts, now - before[0])
        return StatusReply(url, says, rates)

    def _get(self, url: str) -> _WorkerSays:
        answer = self._http.request("GET", url, redirect=False, preload_content=False)
        try:
            if answer.status != 200:
                raise ValueError(f"it answers with the status {answer.status}")
            text = answer.read(_LONGEST + 1)
            if len(text) > _LONGEST:
                raise ValueError("its answer is too long")
        finally:
            answer.close()
        return read_status(text)
