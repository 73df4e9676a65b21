"""Retries: what is tried again, how long, and what never is."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from sparkinesis.stream.calls.retry import Retry, is_retryable


def service_error(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetRecords")


@pytest.mark.parametrize(
    "error",
    [
        service_error("ProvisionedThroughputExceededException"),
        service_error("KMSThrottlingException"),
        service_error("LimitExceededException"),
        service_error("InternalFailure", 500),
        service_error("SomethingNew", 503),
        ReadTimeoutError(endpoint_url="http://x"),
        ConnectTimeoutError(endpoint_url="http://x"),
        EndpointConnectionError(endpoint_url="http://x"),
    ],
)
def test_passing_troubles_are_retried(error: Exception) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        service_error("AccessDeniedException"),
        service_error("ResourceNotFoundException"),
        service_error("ValidationException"),
        service_error("InvalidArgumentException"),
        service_error("ExpiredIteratorException"),
        service_error("KMSAccessDeniedException"),
        NoCredentialsError(),
        ValueError(),
    ],
)
def test_what_no_retry_mends_is_not_retried(error: Exception) -> None:
    assert not is_retryable(error)


class Flaky:
    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise service_error("ProvisionedThroughputExceededException")
        return "done"


def test_waits_double_up_to_the_cap_with_full_jitter() -> None:
    drawn: list[tuple[float, float]] = []
    slept: list[float] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high / 2

    retry = Retry(0.1, 1.0, 100.0, clock=lambda: 0.0, sleep=slept.append, uniform=uniform)
    assert retry.call(Flaky(6)) == "done"
    assert drawn == [(0.0, min(1.0, 0.1 * 2**n)) for n in range(6)]
    assert slept == [high / 2 for _, high in drawn]


def test_retries_end_with_the_last_error() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    retry = Retry(1.0, 10.0, 60.0, clock=lambda: now[0], sleep=sleep, uniform=lambda _, high: high)
    with pytest.raises(ClientError):
        retry.call(Flaky(1000))
    assert 40 < now[0] <= 60
