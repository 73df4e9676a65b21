"""When a shard consumer heeds the reasons for which it is to end."""

from __future__ import annotations

import pytest

from sparkinesis.status import ShardState
from sparkinesis.worker.lifecycle.shard.states import (
    Ending,
    ShutdownReason,
    after_task,
    before_task,
)


@pytest.mark.parametrize("state", ShardState)
@pytest.mark.parametrize("reason", ShutdownReason)
def test_a_reason_is_followed_at_once_unless_the_task_is_the_answer_to_it(
    state: ShardState, reason: ShutdownReason
) -> None:
    """A failing task is run again; it must not hold up a shutdown."""
    asked = (ShardState.SHUTDOWN_REQUESTED, ShutdownReason.REQUESTED)
    answers = state is ShardState.SHUTTING_DOWN or (state, reason) == asked
    assert before_task(state, reason) is (state if answers else after_task(state, reason))
    assert before_task(state, None) is state


@pytest.mark.parametrize("state", ShardState)
def test_only_a_shard_that_is_processed_is_held_and_reasons_go_before_a_pause(
    state: ShardState,
) -> None:
    """A parent is waited for, and a processor is initialized, during a pause as well."""
    held = ShardState.PAUSED if state is ShardState.PROCESSING else state
    assert before_task(state, None, is_paused=True) is held
    for reason in ShutdownReason:
        assert before_task(state, reason, is_paused=True) is before_task(state, reason)
    assert after_task(ShardState.PAUSED, None) is ShardState.PROCESSING
    for reason in ShutdownReason:
        assert after_task(ShardState.PAUSED, reason) is after_task(ShardState.PROCESSING, reason)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ([], None),
        (["REQUESTED"], "REQUESTED"),
        (["REQUESTED", "SHARD_END"], "SHARD_END"),
        (["SHARD_END", "LEASE_LOST"], "LEASE_LOST"),
        (["LEASE_LOST", "SHARD_END"], "LEASE_LOST"),
        (["SHARD_END", "REQUESTED"], "SHARD_END"),
        (["LEASE_LOST", "LEASE_LOST"], "LEASE_LOST"),
    ],
)
def test_a_reason_gives_way_to_a_higher_one_only(asked: list[str], reason: str | None) -> None:
    ending = Ending()
    for each in asked:
        ending = ending.asked(ShutdownReason[each])
    assert ending.reason is (None if reason is None else ShutdownReason[reason])
    assert ending.is_leaving == ("REQUESTED" in asked)
