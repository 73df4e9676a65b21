"""Every cell of the consumer's table, as the KCL has it."""

from __future__ import annotations

import pytest

from sparkinesis.status import ShardState
from sparkinesis.worker.lifecycle.shard.states import (
    TABLE,
    Ending,
    ShutdownReason,
    Task,
    after_task,
    before_task,
)

WAITING, INITIALIZING, PROCESSING, REQUESTED, COMPLETED, SHUTTING_DOWN, COMPLETE = ShardState
REASONS = (ShutdownReason.REQUESTED, ShutdownReason.LEASE_LOST, ShutdownReason.SHARD_END)

KCL = {
    # state: task, success, requested, lease lost, shard end
    WAITING: (Task.BLOCK_ON_PARENT, INITIALIZING, SHUTTING_DOWN, SHUTTING_DOWN, SHUTTING_DOWN),
    INITIALIZING: (Task.INITIALIZE, PROCESSING, REQUESTED, SHUTTING_DOWN, SHUTTING_DOWN),
    PROCESSING: (Task.PROCESS, PROCESSING, REQUESTED, SHUTTING_DOWN, SHUTTING_DOWN),
    REQUESTED: (Task.SHUTDOWN_NOTIFICATION, COMPLETED, COMPLETED, SHUTTING_DOWN, SHUTTING_DOWN),
    COMPLETED: (None, COMPLETED, COMPLETED, SHUTTING_DOWN, SHUTTING_DOWN),
    SHUTTING_DOWN: (Task.SHUTDOWN, COMPLETE, COMPLETE, COMPLETE, COMPLETE),
    COMPLETE: (None, COMPLETE, COMPLETE, COMPLETE, COMPLETE),
}


@pytest.mark.parametrize("state", ShardState)
def test_each_state_has_its_task(state: ShardState) -> None:
    assert TABLE[state].task is KCL[state][0]


@pytest.mark.parametrize("state", ShardState)
@pytest.mark.parametrize(("reason", "cell"), [(None, 1), *zip(REASONS, (2, 3, 4), strict=True)])
def test_each_event_leads_where_the_kcl_goes(
    state: ShardState, reason: ShutdownReason | None, cell: int
) -> None:
    assert after_task(state, reason) is KCL[state][cell]


@pytest.mark.parametrize("state", ShardState)
@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_followed_at_once_unless_the_task_is_the_answer_to_it(
    state: ShardState, reason: ShutdownReason
) -> None:
    """A failing task is run again; it must not hold up a shutdown."""
    answers = state is SHUTTING_DOWN or (state, reason) == (REQUESTED, ShutdownReason.REQUESTED)
    assert before_task(state, reason) is (state if answers else after_task(state, reason))
    assert before_task(state, None) is state


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
