"""Retries: what is tried again, how long, and what never is."""

from __future__ import annotations

import msgspec
import pytest
from botocore.exceptions import (
    ChecksumError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
)

from sparkinesis.metrics.health.liveness import SignOfLife
from sparkinesis.stream.calls.retry import (
    Attempts,
    Backoff,
    RetryLaterError,
    error_code,
    exponential_backoff,
    is_in_doubt,
    is_retryable,
    result_of,
)
from tests.planners import Time


def service_error(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetRecords")


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

    retry = Backoff(0.1, 1.0, 100.0, clock=lambda: 0.0, sleep=slept.append, uniform=uniform)
    assert retry.call(Flaky(6)) == "done"
    assert drawn == [(0.0, min(1.0, 0.1 * 2**n)) for n in range(6)]
    assert slept == [high / 2 for _, high in drawn]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (service_error("ProvisionedThroughputExceededException"), "throttled"),
        (service_error("KMSThrottlingException"), "throttled"),
        (service_error("LimitExceededException"), "throttled"),
        (service_error("ThrottlingException"), "throttled"),
        (service_error("Throttling"), "throttled"),
        (service_error("TooManyRequestsException"), "throttled"),
        (service_error("RequestLimitExceeded"), "throttled"),
        (service_error("ExpiredIteratorException"), "expired"),
        (service_error("ExpiredTokenException"), "failed"),
        (service_error("InternalFailure"), "retryable"),
        (service_error("InternalServerError"), "retryable"),
        (service_error("InternalFailureException"), "retryable"),
        (service_error("ServiceUnavailable"), "retryable"),
        (service_error("ServiceUnavailableException"), "retryable"),
        (service_error("RequestTimeout"), "retryable"),
        (service_error("RequestTimeoutException"), "retryable"),
        (service_error("TransactionConflictException"), "retryable"),
        (service_error("SomethingNew", 500), "retryable"),
        (service_error("SomethingNew", 499), "failed"),
        (service_error("InternalFailure", 501), "failed"),
        (ClientError({}, "GetRecords"), "failed"),
        (service_error("SomethingNew", 503), "retryable"),
        (ReadTimeoutError(endpoint_url="http://x"), "retryable"),
        (ConnectTimeoutError(endpoint_url="http://x"), "retryable"),
        (EndpointConnectionError(endpoint_url="http://x"), "retryable"),
        (HTTPClientError(error="broken"), "retryable"),
        (ChecksumError(checksum_type="c", expected_checksum="1", actual_checksum="2"), "retryable"),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), "retryable"),
        (service_error("AccessDeniedException"), "failed"),
        (service_error("KMSAccessDeniedException"), "failed"),
        (service_error("ResourceNotFoundException"), "failed"),
        (service_error("ResourceInUseException"), "failed"),
        (service_error("ValidationException"), "failed"),
        (service_error("InvalidArgumentException"), "failed"),
        (NoCredentialsError(), "failed"),
        (ValueError(), "failed"),
    ],
)
def test_passing_troubles_are_retried_and_what_no_retry_mends_is_not(
    error: Exception, result: str
) -> None:
    assert result_of(error) == result
    assert is_retryable(error) is (result in {"throttled", "retryable"})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ReadTimeoutError(endpoint_url="http://x"), True),
        (EndpointConnectionError(endpoint_url="http://x"), True),
        (service_error("InternalServerError", 500), True),
        (service_error("SomethingNew", 503), True),
        (service_error("ProvisionedThroughputExceededException", 400), False),
        (service_error("SomethingNew", 499), False),
        (service_error("InternalFailure", 501), False),
        (ClientError({}, "PutItem"), False),
        (NoCredentialsError(), False),
    ],
)
def test_a_call_whose_answer_was_lost_may_have_taken_effect(
    error: Exception, *, expected: bool
) -> None:
    """A writer looks what is there before it takes the failure for one."""
    assert is_in_doubt(error) is expected


def test_an_error_has_a_name_without_a_code() -> None:
    assert error_code(ClientError({}, "GetRecords")) == "Unknown"
    assert error_code(ValueError()) == "ValueError"


def test_a_consumer_in_use_is_part_of_a_shards_change_of_reader() -> None:
    in_use = service_error("ResourceInUseException")
    assert result_of(in_use, "SubscribeToShard") == "retryable"
    assert result_of(in_use, "RegisterStreamConsumer") == "failed"
    assert result_of(service_error("AccessDeniedException"), "SubscribeToShard") == "failed"


def virtual(time: Time, base: float, cap: float, give_up_after: float) -> Backoff:
    return Backoff(base, cap, give_up_after, time, time.sleep, lambda _, high: high)


def test_without_settings_a_call_is_made_for_five_minutes() -> None:
    time, waits = Time(), list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    with pytest.raises(ClientError):
        Backoff(clock=time, sleep=sleep, uniform=lambda _, high: high).call(Flaky(1000))
    assert waits[:9] == [0.1 * 2**n for n in range(7)] + [10.0, 10.0]
    assert 290 < time.now <= 300


def test_a_loop_tells_how_long_it_waits_for_the_next_attempt() -> None:
    sign, due = SignOfLife(lambda: 0.0), list[float]()
    retry = virtual(Time(), 20.0, 20.0, 60.0)
    told = msgspec.structs.replace(retry, sleep=lambda _: due.append(sign.due))
    sign.during(lambda: told.call(Flaky(1)))
    assert due == [25.0], "five seconds more"


def test_retries_end_with_the_last_error() -> None:
    slept = Time()
    with pytest.raises(ClientError):
        virtual(slept, 1.0, 10.0, 60.0).call(Flaky(1000))
    assert 40 < slept.now <= 60


def test_whoever_counts_retries_hears_of_those_that_are_made_and_of_no_other() -> None:
    retry = virtual(Time(), 1.0, 1.0, 4.0)
    told: list[Exception] = []
    assert retry.call(Flaky(3), told.append) == "done"
    assert [result_of(error) for error in told] == ["throttled"] * 3
    told.clear()
    flaky = Flaky(1000)
    with pytest.raises(ClientError):
        retry.call(flaky, told.append)
    assert (len(told), flaky.calls) == (4, 5), "the last one at the very end"
    told.clear()
    attempts, flaky = Attempts(retry), Flaky(2)
    for _ in range(2):
        with pytest.raises(RetryLaterError):
            attempts.call(flaky, told.append)
    assert attempts.call(flaky, told.append) == "done"
    assert len(told) == 2


class Refusing:
    """A call that fails by these errors, one after the other, and then succeeds."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)

    def __call__(self) -> str:
        if self.codes:
            raise service_error(self.codes.pop(0))
        return "done"


def is_doubted(error: BaseException) -> bool:
    return error_code(error) == "Doubted"


@pytest.mark.parametrize(
    ("codes", "seconds"),
    [
        (["Doubted"], 0.5),
        (["ThrottlingException", "Doubted", "ThrottlingException"], 2.5),
    ],
)
def test_a_doubted_error_is_not_believed_at_once(codes: list[str], seconds: float) -> None:
    time = Time()
    told: list[Exception] = []
    call = Refusing(*codes)
    assert virtual(time, 1.0, 1.0, 9.0).call(call, told.append, is_doubted) == "done"
    assert len(told) == len(codes)
    assert time.now == seconds


@pytest.mark.parametrize("codes", [["Doubted"], ["Doubted", "ThrottlingException"]])
def test_a_doubted_error_that_comes_again_is_believed_and_the_next_calls_anew(
    codes: list[str],
) -> None:
    attempts = Attempts(virtual(Time(), 1.0, 1.0, 9.0))
    for _ in range(2):
        call = Refusing(*codes, "Doubted")
        for _ in codes:
            with pytest.raises(RetryLaterError):
                attempts.call(call, None, is_doubted)
        with pytest.raises(ClientError, match="Doubted"):
            attempts.call(call, None, is_doubted)


def test_whoever_gave_up_has_all_the_time_for_the_next_call() -> None:
    """The time begins with the first failure, however long that took."""
    time = Time()
    attempts = Attempts(virtual(time, 1.0, 1.0, 4.0))

    def fail() -> None:
        time.sleep(2.0)
        raise service_error("ThrottlingException")

    for _ in range(2):
        for _ in range(2):
            with pytest.raises(RetryLaterError):
                attempts.call(fail)
            time.sleep(1.0)
        with pytest.raises(ClientError):
            attempts.call(fail)


def test_each_call_begins_with_a_short_pause() -> None:
    attempts = Attempts(virtual(Time(), 1.0, 9.0, 40.0))
    for _ in range(2):
        flaky = Flaky(2)
        for pause in (1.0, 2.0):
            with pytest.raises(RetryLaterError) as later:
                attempts.call(flaky)
            assert later.value.seconds == pause
        assert attempts.call(flaky) == "done"
        assert attempts.failures == 0


def test_pauses_without_a_call_grow_and_end_in_time() -> None:
    time = Time()
    attempts = Attempts(virtual(time, 1.0, 9.0, 4.0))
    for _ in range(2):
        time.sleep(100.0)
        assert [attempts.next_pause(), attempts.next_pause(), attempts.next_pause()] == [1, 2, 4]
        assert attempts.failures == 3
        assert attempts.next_pause() is None
        assert attempts.next_pause(0.5) == 0.5
        time.sleep(4.0)
        assert attempts.next_pause(0.5) is None
        attempts.succeed()


@pytest.mark.parametrize(
    ("failures", "wait"),
    [(0, 0.5), (1, 0.5), (2, 1), (3, 2), (5, 8), (6, 10), (33, 10), (2000, 10), (10**9, 10)],
)
def test_each_failure_doubles_the_wait_from_the_base_up_to_the_cap(
    failures: int, wait: float
) -> None:
    assert exponential_backoff(0.5, 10.0, failures) == wait
