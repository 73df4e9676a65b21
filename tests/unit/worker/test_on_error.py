"""Policies are values: how long a retry waits, and what comes after the last."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import Mock

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.worker.dead_letters.targets import (
    DeadLetterDirectory,
    DeadLetterStream,
    FailedRecords,
)
from sparkinesis.worker.on_error import (
    RETRY,
    DeadLetter,
    Retry,
    Skip,
    Stop,
    last_resort,
    wait_before_retry,
)


def longest(_: float, high: float) -> float:
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
    assert last_resort(Retry(5)) == Stop(), "loses nothing unless told to"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"base": -1.0}, r"base of Retry is -1\.0"),
        ({"cap": -1}, "cap is -1"),
        ({"then": Skip}, r"then of Retry is .* must be Skip\(\)"),
        ({"then": RETRY}, r"then of Retry is .* must be Skip\(\)"),
    ],
)
def test_retries_that_make_no_sense(given: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        Retry(**given)


async def promise(failed: FailedRecords) -> None:
    pass


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("somewhere", "'somewhere'"),
        (None, "None"),
        (Unspeakable(), "Unspeakable"),
        (lambda: None, "one argument"),
        (lambda failed, error: None, "one argument"),
        (lambda *, failed: None, "one argument"),
        (promise, "async or a generator"),
        (DeadLetterDirectory, "the class DeadLetterDirectory; give an instance"),
        (list, "the class list; give an instance"),
    ],
)
def test_what_is_no_dead_letter_target_is_refused_at_construction(target: Any, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        DeadLetter(target)


def test_whatever_takes_failed_records_is_a_target() -> None:
    taken: list[Any] = []
    targets: list[Any] = [print, taken.append, functools.partial(print, "failed"), Mock(), max]
    for target in (*targets, lambda failed, log=None: None, DeadLetterStream("dead")):
        assert DeadLetter(target).target is target
