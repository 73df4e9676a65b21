"""When to subscribe again."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    EventStreamError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.fan_out.interruption import (
    NO_FAILURES,
    Cause,
    FailureStreak,
    cause_of,
    ending_of,
    pause_after,
)

causes = st.sampled_from([cause for cause in Cause if cause is not Cause.FINAL])
ages = st.none() | st.floats(0, 1000)


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "SubscribeToShard",
    )


def ended(code: str) -> EventStreamError:
    return EventStreamError({"Error": {"Code": code}}, "SubscribeToShard")


@pytest.mark.parametrize(
    ("error", "had_begun", "cause"),
    [
        (None, True, Cause.ENDED),
        (refused("ResourceInUseException"), False, Cause.IN_USE),
        (ended("ResourceInUseException"), True, Cause.TAKEN_OVER),
        (refused("LimitExceededException"), False, Cause.BROKEN),
        (refused("Strange", 500), False, Cause.BROKEN),
        (EndpointConnectionError(endpoint_url="x"), False, Cause.BROKEN),
        (ReadTimeoutError(endpoint_url="x"), True, Cause.BROKEN),
        (ResponseStreamingError(error="x"), True, Cause.BROKEN),
        (CorruptEventStreamError(), True, Cause.BROKEN),
        (ended("InternalFailureException"), True, Cause.BROKEN),
        (ended("KMSThrottlingException"), True, Cause.BROKEN),
        (ended("KMSInvalidStateException"), True, Cause.FINAL),
        (ended("KMSDisabledException"), True, Cause.FINAL),
        (ended("ResourceNotFoundException"), True, Cause.FINAL),
        (refused("ResourceNotFoundException"), False, Cause.FINAL),
        (refused("AccessDeniedException"), False, Cause.FINAL),
        (NoCredentialsError(), False, Cause.FINAL),
    ],
)
def test_why_it_ended(error: Exception | None, had_begun: bool, cause: Cause) -> None:
    assert cause_of(error, had_begun=had_begun) is cause


@given(causes, st.integers(0, 50), st.floats(0, 1000), st.floats(0, 1))
def test_never_within_five_seconds_of_a_success(
    cause: Cause, failures: int, age: float, luck: float
) -> None:
    retry = Backoff(base=0.5, cap=30, uniform=lambda least, most: least + luck * (most - least))
    before = FailureStreak(failures, failures)
    assert age + pause_after(cause, before, age, retry) >= 5 - 1e-9


@given(causes, st.integers(0, 50), ages)
def test_the_mean_wait_grows_with_failures_to_a_bound(
    cause: Cause, failures: int, age: float | None
) -> None:
    retry = Backoff(base=0.5, cap=30, uniform=lambda least, most: (least + most) / 2)
    shorter, longer = (
        pause_after(cause, FailureStreak(n, n), age, retry) for n in (failures, failures + 1)
    )
    assert 0 <= shorter <= longer <= 15 + 15
    if failures:
        assert shorter >= 0.25


@given(ages.filter(lambda age: age is None or age >= 5))
def test_only_what_was_over_after_events_is_followed_at_once(age: float | None) -> None:
    retry = Backoff(uniform=lambda _, most: most)
    at_once = {cause for cause in Cause if pause_after(cause, NO_FAILURES, age, retry) == 0}
    assert at_once == {Cause.ENDED}


@pytest.mark.parametrize(
    ("cause", "before", "age", "least", "most"),
    [
        (Cause.ENDED, NO_FAILURES, 5.0, 0.0, 0.0),
        (Cause.ENDED, NO_FAILURES, 1.0, 4.0, 4.5),
        (Cause.ENDED, FailureStreak(1), 300.0, 0.0, 1.0),
        (Cause.BROKEN, FailureStreak(2), 3.0, 2.0, 4.0),
        (Cause.BROKEN, FailureStreak(2), None, 0.0, 2.0),
        (Cause.IN_USE, NO_FAILURES, None, 1.0, 1.5),
        (Cause.IN_USE, NO_FAILURES, 3.0, 3.0, 3.5),
        (Cause.IN_USE, FailureStreak(0, 10), 3.0, 2.0, 32.0),
        (Cause.TAKEN_OVER, NO_FAILURES, 300.0, 10.0, 20.5),
        (Cause.TAKEN_OVER, FailureStreak(2), 1.0, 10.0, 22.0),
        (Cause.DOUBTED, FailureStreak(5), 4.0, 1.5, 1.5),
        (Cause.DOUBTED, NO_FAILURES, None, 0.5, 0.5),
    ],
)
def test_the_pause_is_drawn_between_two_bounds(
    cause: Cause, before: FailureStreak, age: float | None, least: float, most: float
) -> None:
    """Not at the same moment as other workers, and not while the service would refuse."""
    for luck, expected in ((0, least), (1, most)):
        retry = Backoff(base=0.5, cap=30, uniform=lambda *bounds: bounds[luck])  # noqa: B023
        assert pause_after(cause, before, age, retry) == expected


def test_a_consumer_in_use_does_not_make_the_next_failure_wait_longer() -> None:
    """Who takes a shard over is refused for five seconds; that tells nothing of the service."""
    retry = Backoff(base=0.5, cap=30, uniform=lambda _, most: most)
    trouble = NO_FAILURES
    for second in range(8):
        trouble = trouble.with_failure(Cause.IN_USE, second)
    assert pause_after(Cause.BROKEN, trouble, None, retry) == 0.5


def test_a_consumer_that_stays_in_use_is_asked_less_often() -> None:
    retry = Backoff(base=0.5, cap=30, uniform=lambda _, most: most)
    trouble, pauses = NO_FAILURES, []
    for _ in range(12):
        pauses.append(pause_after(Cause.IN_USE, trouble, None, retry))
        trouble = trouble.with_failure(Cause.IN_USE, 0)
    assert pauses == [1.5] * 10 + [30.0] * 2


def test_trouble_lasts_from_its_first_failure() -> None:
    trouble = (
        NO_FAILURES.with_failure(Cause.IN_USE, 10)
        .with_failure(Cause.BROKEN, 20)
        .with_failure(Cause.BROKEN, 30)
    )
    assert (trouble.failures, trouble.refusals) == (2, 0)
    assert trouble.duration(35) == 25
    assert NO_FAILURES.duration(35) == 0


def test_each_end_of_a_subscription_has_a_reason_of_its_own() -> None:
    others = {Cause.IN_USE, Cause.DOUBTED}  # that never begins; that ends as a failure does
    begun = [ending_of(cause, had_begun=True) for cause in Cause if cause not in others]
    assert begun == ["expired", "broken", "taken over", "failed"]
    assert ending_of(Cause.DOUBTED, had_begun=True) == "failed"
    assert {ending_of(cause, had_begun=False) for cause in Cause} == {"refused"}
