"""One service as the doctor asks it: each call once or twice, with its errors explained."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from sparkinesis.errors import SparkinesisError
from sparkinesis.monitor.doctor.finding import Finding, note, ok, problem_of
from sparkinesis.stream.calls.retry import Retry, error_code
from sparkinesis.stream.service_time import second_of

RETRY = Retry(base=0.1, cap=1.0, give_up_after=5.0)

Explain: TypeAlias = Callable[[ClientError | BotoCoreError, str], SparkinesisError]
"""Returns what to raise for the error of an operation."""


class RefusedError(Exception):
    """A call that failed: the service's code, and the error that explains it."""

    def __init__(self, code: str, explained: SparkinesisError) -> None:
        super().__init__(str(explained))
        self.code = code
        self.explained = explained


class NotKnownError(Exception):
    """The installed botocore does not know a parameter of a call."""


class Service:
    """Calls of one service. For one thread."""

    def __init__(
        self,
        client: Any,
        explain: Explain,
        retry: Retry = RETRY,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = str(client.meta.endpoint_url)
        self.ahead: float | None = None
        """The seconds that this machine's clock is ahead of the service's, by the latest answer;
        None: there was no answer."""
        self._client = client
        self._explain = explain
        self._retry = retry
        self._wall_clock = wall_clock

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Make a call. Raises `RefusedError` or `NotKnownError`."""
        method = getattr(self._client, xform_name(operation))
        try:
            answer: dict[str, Any] = self._retry.call(lambda: method(**request))
        except ParamValidationError as error:
            raise NotKnownError(str(error)) from error
        except ClientError as error:
            self._note_clock(error.response)
            raise RefusedError(error_code(error), self._explain(error, operation)) from error
        except BotoCoreError as error:
            raise RefusedError(error_code(error), self._explain(error, operation)) from error
        self._note_clock(answer)
        return answer

    def _note_clock(self, answer: Mapping[str, Any]) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.ahead = clock_ahead(headers.get("date"), self._wall_clock())


def clock_ahead(date: str | None, now: float) -> float | None:
    """Return the seconds that a clock is ahead of an answer's ``Date`` header. Pure.

    ``now``: the epoch seconds at the answer. A header has whole seconds: it stands for their
    middle. None without a valid header.
    """
    there = second_of(date)
    return None if there is None else now - (there + 0.5)


def refusals_told(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings; a call that is refused is a problem, and ends them."""
    try:
        yield from findings
    except RefusedError as refused:
        yield problem_of(check, refused.explained)


def permissions(
    check: str,
    service: Service,
    calls: Mapping[str, Mapping[str, Any]],
    expected: Collection[str],
) -> list[Finding]:
    """Make calls without effect, and return which of them are permitted.

    calls: the arguments by operation. expected: the codes of errors that a permitted call gives.
    """
    permitted: list[str] = []
    found: list[Finding] = []
    for operation, request in calls.items():
        try:
            service.call(operation, **request)
        except NotKnownError:
            found.append(
                note(check, f"{operation} was not checked: the installed boto3 is too old")
            )
            continue
        except RefusedError as refused:
            if refused.code not in expected:
                found.append(problem_of(check, refused.explained))
                continue
        permitted.append(operation)
    if permitted:
        found.insert(0, ok(check, f"{', '.join(permitted)} may be called"))
    return found
