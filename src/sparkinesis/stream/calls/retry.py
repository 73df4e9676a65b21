"""Retries of failed calls: which errors are retried, and after how long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    IncompleteReadError,
)

from sparkinesis.metrics.health.liveness import expect
from sparkinesis.metrics.metrics import FAILED

_T = TypeVar("_T")

OnRetry: TypeAlias = Callable[[ClientError | BotoCoreError], None]

THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "KMSThrottlingException",
    }
)
_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "InternalFailureException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
        "TransactionConflictException",
    }
)


_UNANSWERED = (ChecksumError, ConnectionError, HTTPClientError, IncompleteReadError)
"""There was no answer, or it did not arrive as it was sent."""
_MOST_DOUBLINGS = 32
"""The exponent's limit, so that no number of failures overflows a float."""


def error_code(error: BaseException) -> str:
    """Return the service's error code, such as ``ResourceNotFoundException``, or the class name."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def is_retryable(error: BaseException) -> bool:
    """Return True if a retry may succeed: after throttling, 5xx, timeouts and broken connections.

    A call that is denied, names a missing stream, has invalid arguments or is one that the server
    does not have fails each time.
    """
    if isinstance(error, ClientError):
        if status_of(error) == NOT_IMPLEMENTED:
            return False
        code = error_code(error)
        return code in THROTTLED or code in _TRANSIENT or _is_of_the_server(error)
    return isinstance(error, _UNANSWERED)


def is_in_doubt(error: BaseException) -> bool:
    """Return True if the failed call may have taken effect: the answer was lost, or is 5xx."""
    if isinstance(error, ClientError):
        return _is_of_the_server(error)
    return isinstance(error, _UNANSWERED)


NOT_IMPLEMENTED = 501
"""The HTTP status by which emulators of AWS say that they do not have an operation."""


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an answer that is an error; 0 if there is none."""
    response = error.response if isinstance(error, ClientError) else {}
    status: int = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def _is_of_the_server(error: ClientError) -> bool:
    return status_of(error) >= 500 and status_of(error) != NOT_IMPLEMENTED


def result_of(error: BaseException, operation: str | None = None) -> str:
    """Return the result of a failed attempt of a call, as metrics name it. Pure.

    throttled, expired (the shard iterator), retryable, or failed.
    """
    code = error_code(error)
    if code in THROTTLED:
        return "throttled"
    if code == "ExpiredIteratorException":
        return "expired"
    # The shard's last subscription is seconds old; this is part of each change of a shard's reader.
    is_early = operation == "SubscribeToShard" and code == "ResourceInUseException"
    return "retryable" if is_early or is_retryable(error) else FAILED


ASKED_AGAIN_AFTER = 0.5
"""Seconds after which a call is made again whose answer would have consequences: see `Doubts`."""

Doubts: TypeAlias = Callable[[BaseException], bool]
"""Whether an error is to be believed only if it comes a second time. No retry should help after it,
but one wrong answer of a proxy, or of a server that has just started, would lose or repeat much."""


def is_never_doubted(_: BaseException) -> bool:
    return False


def exponential_backoff(base: float, cap: float, failures: int) -> float:
    """Return the seconds to wait after a number of consecutive ``failures``.

    The wait is ``base`` after the first one, and doubles with each other up to ``cap``. A caller
    that wants jitter draws a wait up to this one.
    """
    return min(cap, base * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS))


# A call must outlast what passes (throttling, an outage of minutes, a broken connection), must not
# add to it, and must not repeat what cannot succeed.
#
# - The waits have full jitter: many shards are throttled in the same second, and would come back in
#   the same second.
# - The time until giving up begins with the first failure, not with the call; a success ends it. A
#   count of attempts would give up sooner the faster the failures come.
# - An error by which a record is gone makes a reader resume elsewhere, and repeat or lose much. One
#   such answer of GetShardIterator made a worker resume at the oldest record. It is believed only
#   if it comes a second time, after `ASKED_AGAIN_AFTER` (`Doubts`).
# - Readers by the hundred share few threads, so a wait of seconds must not hold one. `Attempts`
#   raises `RetryLaterError` with the wait, and its caller comes back by then.
class Backoff(msgspec.Struct, frozen=True):
    """Retries calls for at most ``give_up_after`` seconds: exponential backoff, full jitter.

    The n-th wait is drawn evenly from 0 to ``min(cap, base * 2**n)`` seconds.
    """

    base: float = 0.1
    cap: float = 10.0
    give_up_after: float = 300.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.SystemRandom().uniform

    def pause(self, attempt: int) -> float:
        """Draw the seconds to wait after the failed attempt number ``attempt`` (from 0)."""
        return self.uniform(0.0, exponential_backoff(self.base, self.cap, attempt + 1))

    def call(
        self,
        call: Callable[[], _T],
        on_retry: OnRetry | None = None,
        doubts: Doubts = is_never_doubted,
    ) -> _T:
        """Run ``call`` until it succeeds; raise its last error if no retry helps or time is up.

        on_retry: takes each error after which the call is made again. doubts: an error that is
        believed only if it comes a second time.
        """
        attempts = Attempts(self)
        while True:
            try:
                return attempts.call(call, on_retry, doubts)
            except RetryLaterError as later:
                pause = later.seconds
            expect(pause)
            self.sleep(pause)


class RetryLaterError(Exception):
    """A call failed for a moment; it is to be made again in ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Attempts:
    """The retries of a `Backoff`, for a caller that does not hold a thread while it waits.

    Makes one attempt at a time. For the calls of one reader, one after the other.
    """

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self.failures = 0
        """The failed attempts of the call that is being made."""
        self._has_doubted = False
        self._give_up_at: float
        """Set by the first failure."""

    def call(
        self,
        call: Callable[[], _T],
        on_retry: OnRetry | None = None,
        doubts: Doubts = is_never_doubted,
    ) -> _T:
        """Make one attempt. Raises `RetryLaterError`, or the error if no retry helps any more."""
        try:
            result = call()
        except (ClientError, BotoCoreError) as error:
            is_doubted = not self._has_doubted and doubts(error)
            pause = self.next_pause(ASKED_AGAIN_AFTER if is_doubted else None)
            if pause is None or not (is_doubted or is_retryable(error)):
                self.succeed()
                raise
            self._has_doubted |= is_doubted
            if on_retry is not None:
                on_retry(error)
            raise RetryLaterError(pause) from error
        if self.failures:
            self.succeed()
        return result

    def next_pause(self, pause: float | None = None) -> float | None:
        """Count a failure; return the seconds up to the next attempt, None once time is up.

        The time begins with the first failure.
        """
        now = self._retry.clock()
        if not self.failures:
            self._give_up_at = now + self._retry.give_up_after
        if pause is None:
            pause = self._retry.pause(self.failures)
        if now + pause > self._give_up_at:
            return None
        self.failures += 1
        return pause

    def succeed(self) -> None:
        """Forget the failures so far."""
        self.failures, self._has_doubted = 0, False


Retries: TypeAlias = Backoff | Attempts
"""A way to make a call that may fail for a moment."""
