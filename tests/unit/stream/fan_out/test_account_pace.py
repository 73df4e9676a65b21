"""Calls of many threads that an account may make only a few times a second."""

from __future__ import annotations

import pytest

from sparkinesis.local import Limits
from sparkinesis.stream.fan_out.account_pace import BETWEEN, AccountPace


def test_calls_of_an_operation_come_some_time_apart() -> None:
    slept: list[float] = []
    now = 10.0
    pace = AccountPace(lambda: now, slept.append)
    for _ in range(4):
        pace("RegisterStreamConsumer")
    pace("DescribeStreamConsumer")
    between = BETWEEN["RegisterStreamConsumer"]
    assert slept == pytest.approx([between, 2 * between, 3 * between])
    now += 60.0
    pace("RegisterStreamConsumer")
    assert len(slept) == 3


@pytest.mark.parametrize("operation", BETWEEN)
def test_a_process_leaves_a_part_of_the_accounts_limit_to_others(operation: str) -> None:
    assert 1 / BETWEEN[operation] < Limits().account_calls[operation]
