"""One service: whether it can be reached, and what it answers to the doctor's calls.

Each call is made once or twice, and its errors are explained.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from sparkinesis.errors import SparkinesisError
from sparkinesis.monitor.doctor.judge import Finding, note, ok, problem, problem_of
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.timing import second_of

_TIMEOUT = 5.0
"""Seconds for each step."""


def reach(check: str, url: str, timeout: float = _TIMEOUT) -> Finding:
    """Connect to an endpoint, or to the proxy that requests to it go through."""
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    target = urlsplit(proxy if proxy and "://" in proxy else f"http://{proxy}" if proxy else url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    where = f"the proxy {host}:{port}" if proxy else f"{host}:{port}"
    unset = (
        " The proxy is from the environment (HTTPS_PROXY, HTTP_PROXY); NO_PROXY names the hosts "
        "that are called without one."
        if proxy
        else ""
    )
    try:
        with socket.create_connection((host, port), timeout) as connection:
            if target.scheme == "https":
                _shake_hands(connection, host)
    except socket.gaierror as error:
        return problem(
            check,
            f"the name {host!r} has no address: {error.strerror or error}",
            "Check the region and the endpoint for a typing error, and this machine's DNS; in a "
            f"private network, the service's VPC endpoint.{unset}",
        )
    except ssl.SSLError as error:
        return problem(
            check,
            f"{where} does not pass for {host!r}: {error}",
            "If a proxy or a private endpoint has a certificate of its own, name its authority "
            "by the environment variable AWS_CA_BUNDLE.",
        )
    except OSError as error:
        return problem(
            check,
            f"nothing answers at {where}: {error}",
            "Check the endpoint and its port, and that routes, security groups and firewalls let "
            f"this machine through.{unset}",
        )
    return ok(check, f"{where} can be reached" + (f", for {url}" if proxy else ""))


def _shake_hands(connection: socket.socket, host: str) -> None:
    authorities = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    trusted = ssl.create_default_context(cafile=authorities or get_cert_path(verify=True))
    with trusted.wrap_socket(connection, server_hostname=host):
        pass


RETRY = Backoff(base=0.1, cap=1.0, give_up_after=5.0)

Explain: TypeAlias = Callable[[ClientError | BotoCoreError, str], SparkinesisError]
"""Returns what to raise for the error of an operation."""


class FailedCallError(Exception):
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
        retry: Backoff = RETRY,
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
        """Make a call. Raises `FailedCallError` or `NotKnownError`."""
        method = getattr(self._client, xform_name(operation))
        try:
            answer: dict[str, Any] = self._retry.call(lambda: method(**request))
        except ParamValidationError as error:
            raise NotKnownError(str(error)) from error
        except ClientError as error:
            self._note_clock(error.response)
            raise FailedCallError(error_code(error), self._explain(error, operation)) from error
        except BotoCoreError as error:
            raise FailedCallError(error_code(error), self._explain(error, operation)) from error
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
    except FailedCallError as refused:
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
        except FailedCallError as refused:
            if refused.code not in expected:
                found.append(problem_of(check, refused.explained))
                continue
        permitted.append(operation)
    if permitted:
        found.insert(0, ok(check, f"{', '.join(permitted)} may be called"))
    return found
