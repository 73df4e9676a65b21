"""The rules of holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.events import BatchAction
from sparkinesis.queue.address import LONGEST_VISIBILITY
from sparkinesis.queue.hold_rules import (
    ACKNOWLEDGE,
    QUEUE_RETRY,
    RELEASE,
    Meaning,
    extension_due,
    meaning,
    retry_seconds,
    spare_places,
    verdict,
)
from sparkinesis.worker.on_error import DeadLetter, Retry, Skip, Stop


def least(low: float, _: float) -> float:
    return low


def most(_: float, high: float) -> float:
    return high


def test_a_hold_is_extended_in_its_second_half_with_a_quarter_left() -> None:
    assert extension_due(100.0, 40.0, least) == 120.0
    assert extension_due(100.0, 40.0, most) == 130.0


@pytest.mark.parametrize(
    ("concurrency", "mean", "visibility", "spare"),
    [
        (1, None, 30, 0),
        (1, 0.1, 30, 10),
        (1, 0.11, 30, 0),
        (32, 3.0, 30, 10),
        (32, 3.3, 30, 0),
        (1, 0.1, 9, 0),  # a tenth of the visibility timeout is less
    ],
)
def test_records_wait_in_hand_only_for_quick_handlers(
    concurrency: int, mean: float | None, visibility: int, spare: int
) -> None:
    assert spare_places(concurrency, mean, visibility) == spare


def test_the_default_waits_outlast_a_short_outage() -> None:
    waits = [retry_seconds(QUEUE_RETRY, count, least) for count in range(1, 6)]
    assert waits == [5, 10, 20, 40, 80]
    assert [retry_seconds(QUEUE_RETRY, count, most) for count in range(1, 6)] == [
        10,
        20,
        40,
        80,
        160,
    ]


@given(
    st.builds(Retry, base=st.floats(0, 1e9), cap=st.floats(0, 1e9)),
    st.integers(0, 10**6),
    st.sampled_from([least, most]),
)
def test_a_wait_is_a_visibility_timeout_that_the_service_takes(
    policy: Retry, count: int, uniform: object
) -> None:
    seconds = retry_seconds(policy, count, uniform)  # type: ignore[arg-type]
    assert isinstance(seconds, int)
    assert 0 <= seconds <= LONGEST_VISIBILITY


def test_a_policy_counts_the_deliveries() -> None:
    def target(_: object) -> None: ...

    letter = DeadLetter(target)
    policy = Retry(attempts=3, then=letter)
    assert verdict(policy, 2, least).settlement.visible_after is not None
    assert verdict(policy, 2, least).action is BatchAction.RETRY
    assert verdict(policy, 3, least) == (ACKNOWLEDGE, BatchAction.DEAD_LETTER, letter)
    assert verdict(Skip(), 1, least) == (ACKNOWLEDGE, BatchAction.SKIP, None)
    assert verdict(Stop(), 1, least) == (RELEASE, BatchAction.STOP, None)


@pytest.mark.parametrize(
    ("code", "means"),
    [
        (None, Meaning.DONE),
        ("ThrottlingException", Meaning.AGAIN),
        ("InternalFailureException", Meaning.AGAIN),
        ("Unknown", Meaning.AGAIN),
        ("ResourceNotFoundException", Meaning.LOST),
        ("InvalidArgumentException", Meaning.LOST),
    ],
)
def test_failed_entries_may_succeed_or_not(code: str | None, means: Meaning) -> None:
    assert meaning(code) is means
