"""Batched writes of a worker, used only if the server supports batches correctly.

Some servers with DynamoDB's API lack BatchExecuteStatement, fail in it, or report success for a
statement whose condition does not hold. A lease that another worker has taken would then count as
renewed. A probe before the first batch detects these servers. Later, if a batch fails and one of
its writes succeeds alone, the fault lies in batches and not in the service as a whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, LeaseTableUnavailableError, SparkinesisError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import BATCH, Failed
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.calls.explain import ACCESS_DENIED
from sparkinesis.stream.calls.retry import error_code, is_retryable

_log = logging.getLogger(__name__)

BATCHES_AGAIN = 600.0
"""Seconds after which batches that were not permitted, or failed, are tried again."""

_UNABLE = frozenset({"UnknownOperationException", "InvalidAction", "ValidationException"})
"""Codes of a server that does not know the call or its statements; retries are useless."""

Result = Lease | SparkinesisError | Failed


class Suspicion(msgspec.Struct, frozen=True):
    """A sign that the server cannot write batches; a write that succeeds alone confirms it."""

    failed: Failed
    is_for_good: bool
    """True if the worker never tries batches again."""
    cleared_by: type[SparkinesisError] | None = None
    """The error of a single write that refutes the suspicion."""


def suspect(results: Sequence[Result]) -> Suspicion | None:
    """Return the suspicion that the results of one batch raise, if any. Pure.

    Throttling, time-outs and broken connections raise none: single writes fail by them, too.
    """
    failed = [result for result in results if isinstance(result, Failed)]
    for one in failed:
        if _is_unable(one.error):
            return Suspicion(one, is_for_good=error_code(one.error) in _UNABLE)
    if not failed or len(failed) < len(results):
        return None
    if all(error_code(one.error) in ACCESS_DENIED for one in failed):
        return Suspicion(failed[0], is_for_good=False, cleared_by=AccessDeniedError)
    if all(_is_servers(one.error) for one in failed):
        return Suspicion(failed[0], is_for_good=False, cleared_by=LeaseTableUnavailableError)
    return None


def _is_unable(error: ClientError | BotoCoreError) -> bool:
    """Return True if the error says that the server does not know the call or its statements."""
    code = error_code(error)
    is_elses = code == "ResourceNotFoundException" or code in ACCESS_DENIED
    return isinstance(error, ClientError) and not is_elses and not is_retryable(error)


def _is_servers(error: ClientError | BotoCoreError) -> bool:
    """Return True for a failure of the server itself (5xx)."""
    if not isinstance(error, ClientError):
        return False
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500


class Batching:
    """The writes of one worker to its lease table.

    ``clock`` is monotonic. For any thread.
    """

    def __init__(self, table: LeaseTable, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._probing = threading.Lock()
        """Held during a probe: the threads that renew and take leases may ask at the same time."""
        self._is_proven = False
        """True once the server has refused a statement whose condition does not hold."""
        self._is_over = False
        self._alone_until: float | None = None
        """The time at which batches are tried again; None while batches work."""
        self._suspicion: Suspicion | None = None
        """The suspicion that a failed probe raised."""

    def size(self, leases: Sequence[Lease]) -> int:
        """Return the most writes that one call may hold now: `BATCH`, or 1.

        ``leases``: the leases to write. If there are two or more, one of them serves for the probe.
        Until the server has passed the probe, each lease is written alone.
        """
        if not self._are_tried():
            return 1
        with self._probing:
            if not self._is_proven and len(leases) > 1:
                self._probe(leases)
        return BATCH if self._is_proven else 1

    def write(self, updates: Sequence[Update]) -> list[Lease | SparkinesisError]:
        """Write the updates; return, in order, the rows or the errors of `LeaseTable.write`."""
        if len(updates) == 1 or not self._are_tried():
            return [self._alone(update) for update in updates]
        results = self._table.write_batch(updates)
        suspicion = suspect(results)
        if suspicion is not None:
            results = self._each_alone(updates, results, suspicion)
        elif any(isinstance(result, Lease) for result in results):
            with self._lock:
                self._alone_until = None
        return [
            self._table.error_of(result) if isinstance(result, Failed) else result
            for result in results
        ]

    def _are_tried(self) -> bool:
        with self._lock:
            until = self._alone_until
            return not self._is_over and (until is None or self._clock() >= until)

    def _probe(self, leases: Iterable[Lease]) -> None:
        """Send a statement whose condition does not hold, which the server must refuse."""
        self._suspicion = None
        update = next((one for one in map(requests.probe, leases) if one is not None), None)
        if update is None:
            return
        (result,) = self._table.write_batch([update])
        if isinstance(result, Lease):
            self._end_for_good(
                "its BatchExecuteStatement answers success for a statement whose condition does "
                "not hold, so that a lease which another worker has taken would seem renewed"
            )
        elif isinstance(result, Failed):
            self._suspicion = suspect([result])
        else:
            self._is_proven = True

    def _alone(self, update: Update) -> Lease | SparkinesisError:
        result = self._table.try_write(update)
        suspicion = self._suspicion
        if suspicion is not None and _is_answered(result):
            self._suspicion = None
            self._confirm(suspicion)
        return result

    def _each_alone(
        self, updates: Sequence[Update], results: Sequence[Result], suspicion: Suspicion
    ) -> list[Result]:
        """Retry the failed writes of a batch, each by a call of its own."""
        outcomes = list(results)
        for i, (update, failed) in enumerate(zip(updates, results, strict=True)):
            if not isinstance(failed, Failed):
                continue
            outcomes[i] = alone = self._table.try_write(update, in_doubt=failed.is_in_doubt)
            if suspicion.cleared_by is not None and isinstance(alone, suspicion.cleared_by):
                break  # an outage, or no permission to write: 24 more calls would fail, too
            if _is_answered(alone):
                self._confirm(suspicion)
        return outcomes

    def _confirm(self, suspicion: Suspicion) -> None:
        why = str(self._table.error_of(suspicion.failed))
        if suspicion.is_for_good:
            self._end_for_good(why)
            return
        with self._lock:
            is_news = self._alone_until is None and not self._is_over
            self._alone_until = self._clock() + BATCHES_AGAIN
        if is_news:
            _log.warning(
                "Leases are renewed one by one, which takes more calls; batches are tried again "
                "every %d minutes: %s",
                BATCHES_AGAIN / 60,
                why,
            )

    def _end_for_good(self, why: str) -> None:
        with self._lock:
            is_news, self._is_over = not self._is_over, True
        if is_news:
            _log.warning(
                "Leases are renewed one by one from now on, which takes more calls. The server of "
                "the %s does not take them in batches: %s",
                self._table,
                why,
            )


def _is_answered(result: Lease | SparkinesisError) -> bool:
    """Return True if a single write was made, or refused because of the row."""
    return isinstance(result, Lease | LeaseChangedError)
