"""Policies are values: how long a retry waits, and what comes after the last."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.worker.dead_letter import check_target
from sparkinesis.worker.on_error import (
    RETRY,
    DeadLetter,
    OnError,
    Retry,
    Skip,
    Stop,
    check_policy,
    last_resort,
    wait_before_retry,
)


def longest(low: float, high: float) -> float:
    assert low == 0.0
    return high


def test_waits_double_up_to_the_cap() -> None:
    policy = Retry(base=0.5, cap=3.0)
    waits = [wait_before_retry(policy, failures, longest) for failures in (1, 2, 3, 4, 5, 10_000)]
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_attempts_are_calls_in_all() -> None:
    policy = Retry(attempts=3, base=1.0)
    assert [wait_before_retry(policy, failures, longest) for failures in (1, 2, 3, 4)] == [
        1.0,
        2.0,
        None,
        None,
    ]
    assert wait_before_retry(Retry(attempts=1), 1, longest) is None
    assert wait_before_retry(RETRY, 10**6, longest) == 30.0, "without end"


@pytest.mark.parametrize("policy", [Skip(), Stop(), DeadLetter(print)])
def test_other_policies_do_not_retry_unless_they_come_behind_retries(policy: Any) -> None:
    assert wait_before_retry(policy, 1, longest) is None
    assert last_resort(policy) is policy
    assert last_resort(Retry(2, then=policy)) is policy


def test_what_comes_after_the_last_retry_loses_nothing_unless_told_to() -> None:
    assert last_resort(Retry(5)) == Stop()


@pytest.mark.parametrize("given", [{"attempts": 0}, {"attempts": -1}, {"base": -1.0}, {"cap": -1}])
def test_retries_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Retry(**given)


@pytest.mark.parametrize("policy", [None, "skip", Skip, Exception()])
def test_what_is_no_policy(policy: Any) -> None:
    with pytest.raises(OptionError, match=r"on_error is .* must be Retry\(\), Skip\(\)"):
        check_policy(policy)


def test_what_is_no_dead_letter_target() -> None:
    with pytest.raises(OptionError, match="'somewhere'"):
        check_target("somewhere")
    check_target(print)


def test_policies_are_accepted() -> None:
    policies: list[OnError] = [RETRY, Skip(), Stop(), DeadLetter(print)]
    for policy in policies:
        check_policy(policy)
