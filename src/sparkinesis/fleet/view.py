"""A fleet on the driver's terminal: shards, workers, lag and rates, in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from rich.console import Console

from sparkinesis.fleet.interrupt import python_interrupt_handler
from sparkinesis.fleet.status import (
    FleetShard,
    FleetState,
    FleetStatus,
    WorkerState,
    WorkerStatus,
)
from sparkinesis.terminal.live import LiveView, can_update, print_line
from sparkinesis.terminal.view import OwnerRow, ShardRow, View
from sparkinesis.worker.lifecycle.states import ShardState
from sparkinesis.worker.status import Failure

_SILENCE = 5.0
"""Seconds without news of a worker that are worth a word."""
_LONG_CALL = 10.0
"""Seconds in one call of a record processor that are worth a word."""
_MESSAGES = 3
"""Of failures and of notes, each."""
_LINE_EVERY = 10
"""Refreshes, where there is no terminal."""


def fleet_view(status: FleetStatus) -> View:
    """Pure. The messages are the latest failures, then the latest notes."""
    failures = map(_failure, reversed(status.failures[-_MESSAGES:]))
    return View(
        f"{status.application}, stream {status.stream}",
        f"{status.state.value}, {_workers(status)}",
        "records/s",
        tuple(map(_owner, status.workers)),
        tuple(map(_shard, status.shards)),
        (*failures, *reversed(status.notes[-_MESSAGES:])),
    )


def watch(
    status: Callable[[], FleetStatus],
    *,
    console: Console | None = None,
    refresh: float = 1.0,
    wait: Callable[[float], bool],
) -> None:
    """Show a fleet until it has ended or failed. Ctrl-C ends this only, and raises nothing.

    On a terminal in place; the last view is left on it. Elsewhere a line every ten refreshes, and
    whenever the fleet's state changes.

    ``refresh``: seconds. ``wait``: waits for so many seconds, as ``threading.Event.wait`` does;
    true: look once more, and return.
    """
    console = console or Console(highlight=False)
    with suppress(KeyboardInterrupt), python_interrupt_handler(), ExitStack() as stack:
        live = stack.enter_context(LiveView(console)) if can_update(console) else None
        told: FleetState | None = None
        refreshes = 0
        is_over = False
        while True:
            seen = status()
            if live is not None:
                live.show(fleet_view(seen))
            elif seen.state is not told or refreshes % _LINE_EVERY == 0:
                told = seen.state
                print_line(fleet_view(seen), console)
            if is_over or seen.state.is_over:
                return
            is_over = wait(refresh)
            refreshes += 1


def _workers(status: FleetStatus) -> str:
    here = len(status.workers)
    if status.wanted:
        return f"{here} of {status.wanted} workers"
    return f"{here} worker{'' if here == 1 else 's'} left"


def _owner(worker: WorkerStatus) -> OwnerRow:
    is_silent = worker.heard_ago >= _SILENCE
    notes = [
        "" if worker.state is WorkerState.RUNNING else worker.state.value,
        f"not heard of for {worker.heard_ago:.0f} s" if is_silent else "",
    ]
    return OwnerRow(
        worker.worker_id,
        worker.shards,
        worker.millis_behind_latest,
        worker.records_per_second,
        ", ".join(note for note in notes if note),
        is_silent,
    )


def _shard(shard: FleetShard) -> ShardRow:
    seconds = shard.processing_for or 0.0
    return ShardRow(
        shard.shard_id,
        shard.worker_id,
        shard.state.value,
        shard.millis_behind_latest,
        shard.records_per_second if shard.state is ShardState.PROCESSING else None,
        f"in one call for {seconds:.0f} s" if seconds >= _LONG_CALL else "",
    )


def _failure(failure: Failure) -> str:
    times = "once" if failure.count == 1 else f"{failure.count} times"
    # Where it was met is long, and may be cut off.
    return f"{times}: {failure.error}: {failure.what}"
