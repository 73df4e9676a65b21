"""The life cycle of a shard consumer, as one table of states, tasks and transitions.

The states, tasks and transitions are those of the KCL's ``ConsumerStates``, and PAUSED. A task that
fails leaves the state as it is and is run again. Shutdown reasons are checked between tasks.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import NamedTuple

from sparkinesis.status import ShardState


class Task(Enum):
    """The task that a shard consumer runs in a state."""

    BLOCK_ON_PARENT = "block on parent"
    INITIALIZE = "initialize"
    PROCESS = "process"
    HOLD = "hold"
    SHUTDOWN_NOTIFICATION = "shutdown notification"
    SHUTDOWN = "shutdown"


class ShutdownReason(IntEnum):
    """The reason for which a shard consumer ends; only a higher one replaces another."""

    REQUESTED = 1
    SHARD_END = 2
    LEASE_LOST = 3


class Row(NamedTuple):
    """One state: its task, and the next state after success and for each shutdown reason."""

    task: Task | None
    success: ShardState
    requested: ShardState
    shard_end: ShardState
    lease_lost: ShardState


_S = ShardState
TABLE = MappingProxyType(
    {
        # state: task, success, requested, shard end, lease lost
        _S.WAITING_ON_PARENT_SHARDS: Row(
            Task.BLOCK_ON_PARENT,
            _S.INITIALIZING, _S.SHUTTING_DOWN, _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.INITIALIZING: Row(
            Task.INITIALIZE,
            _S.PROCESSING, _S.SHUTDOWN_REQUESTED, _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.PROCESSING: Row(
            Task.PROCESS,
            _S.PROCESSING, _S.SHUTDOWN_REQUESTED, _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.PAUSED: Row(
            Task.HOLD,
            _S.PROCESSING, _S.SHUTDOWN_REQUESTED, _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.SHUTDOWN_REQUESTED: Row(
            Task.SHUTDOWN_NOTIFICATION,
            _S.SHUTDOWN_REQUEST_COMPLETED, _S.SHUTDOWN_REQUEST_COMPLETED,
            _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.SHUTDOWN_REQUEST_COMPLETED: Row(
            None,
            _S.SHUTDOWN_REQUEST_COMPLETED, _S.SHUTDOWN_REQUEST_COMPLETED,
            _S.SHUTTING_DOWN, _S.SHUTTING_DOWN,
        ),
        _S.SHUTTING_DOWN: Row(
            Task.SHUTDOWN,
            _S.SHUTDOWN_COMPLETE, _S.SHUTDOWN_COMPLETE, _S.SHUTDOWN_COMPLETE, _S.SHUTDOWN_COMPLETE,
        ),
        _S.SHUTDOWN_COMPLETE: Row(
            None,
            _S.SHUTDOWN_COMPLETE, _S.SHUTDOWN_COMPLETE,
            _S.SHUTDOWN_COMPLETE, _S.SHUTDOWN_COMPLETE,
        ),
    }
)  # fmt: skip


def after_task(state: ShardState, reason: ShutdownReason | None) -> ShardState:
    """Return the state that follows ``state`` once its task has succeeded."""
    row = TABLE[state]
    if reason is None:
        return row.success
    return {
        ShutdownReason.REQUESTED: row.requested,
        ShutdownReason.SHARD_END: row.shard_end,
        ShutdownReason.LEASE_LOST: row.lease_lost,
    }[reason]


def before_task(
    state: ShardState, reason: ShutdownReason | None, *, is_paused: bool = False
) -> ShardState:
    """Return the state whose task is next. A reason takes effect at once, also after a failed task.

    The state stays if its task is the reaction to that reason. A reason goes before a pause.
    """
    if reason is None:
        return _S.PAUSED if is_paused and state is _S.PROCESSING else state
    if TABLE[state].task is Task.SHUTDOWN:
        return state
    if TABLE[state].task is Task.SHUTDOWN_NOTIFICATION and reason is ShutdownReason.REQUESTED:
        return state
    return after_task(state, reason)


class Ending(NamedTuple):
    """The reasons for which a shard consumer was asked to end."""

    reason: ShutdownReason | None = None
    """The highest of them; None: it was not asked."""
    is_leaving: bool = False
    """True once a shutdown was requested, even if the consumer ends for another reason."""

    def asked(self, reason: ShutdownReason) -> Ending:
        """Return the reasons with another one."""
        highest = reason if self.reason is None else max(reason, self.reason)
        return Ending(highest, self.is_leaving or reason is ShutdownReason.REQUESTED)
