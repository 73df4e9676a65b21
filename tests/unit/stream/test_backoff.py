"""Waits double with each failure, up to their cap, however many failures there are."""

from __future__ import annotations

import pytest

from sparkinesis.stream.backoff import exponential_backoff


def test_each_failure_doubles_the_wait_up_to_the_cap() -> None:
    assert [exponential_backoff(0.5, 10.0, n) for n in range(1, 8)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_before_the_first_failure_the_wait_is_the_base() -> None:
    assert exponential_backoff(0.5, 10.0, 0) == 0.5


@pytest.mark.parametrize("failures", [33, 2000, 10**9])
def test_no_number_of_failures_overflows(failures: int) -> None:
    assert exponential_backoff(0.5, 30.0, failures) == 30.0
    assert exponential_backoff(0.0, 30.0, failures) == 0.0
