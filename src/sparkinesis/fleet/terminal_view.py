"""The live terminal view of a fleet: shards, workers, lag and rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress

from rich.console import Console

from sparkinesis.status import (
    Failure,
    FleetShard,
    FleetState,
    FleetStatus,
    FleetStream,
    ShardState,
    UnreadShard,
    WorkerState,
    WorkerStatus,
)
from sparkinesis.terminal.live import can_update, live_view, print_line
from sparkinesis.terminal.printing import counted
from sparkinesis.terminal.view import GroupRow, ShardRow, View
from sparkinesis.worker.lifecycle.signals import python_interrupt_handler

_SILENCE = 5.0
"""Seconds without a message of a worker after which the view mentions it."""
_LONG_CALL = 10.0
"""Seconds in one call of a record processor after which the view mentions it."""
_MESSAGES = 3
"""The most streams of a kind, failures, and notes, that the view shows."""
_LINE_EVERY = 10
"""Refreshes per printed line, without a terminal."""


def fleet_view(status: FleetStatus) -> View:
    """Convert a status to a view. Pure.

    Its messages are the streams that cannot be read, the latest failures, then notes.
    """
    failures = map(_failure, reversed(status.failures[-_MESSAGES:]))
    names = _stream_names(status)
    return View(
        f"{status.application}, {reads(status.stream)}",
        f"{status.state.value}, {_workers(status)}",
        "records/s",
        tuple(map(_owner, status.workers)),
        (
            *(_shard(shard, names) for shard in status.shards),
            *(_unread(shard, names) for shard in status.unread),
        ),
        (
            *_unreadable(status.streams),
            *failures,
            *reversed(status.notes[-_MESSAGES:]),
        ),
        streams=tuple(_stream(stream, names) for stream in status.streams),
    )


def reads(streams: str) -> str:
    """Return the streams of a status as a phrase: "stream web", "streams web, app", "9 streams".

    Of a queue's workers it is one already: "queue orders".
    """
    if streams.endswith(" streams") or streams.startswith("queue "):  # no name has a space
        return streams
    return f"streams {streams}" if ", " in streams else f"stream {streams}"


def watch(
    status: Callable[[], FleetStatus],
    *,
    console: Console | None = None,
    refresh: float = 1.0,
    wait: Callable[[float], bool],
) -> None:
    """Show a fleet until it has ended or failed. Ctrl-C ends only the view, and raises nothing.

    A terminal is updated in place and keeps the last view. Without a terminal, a line is printed
    every ten refreshes and whenever the fleet's state changes.

    ``refresh``: seconds. ``wait``: waits for the given seconds, as ``threading.Event.wait`` does;
    if it returns True, the view is updated once more and ends.
    """
    console = console or Console(highlight=False)
    with suppress(KeyboardInterrupt), python_interrupt_handler(), ExitStack() as stack:
        show = stack.enter_context(live_view(console)) if can_update(console) else None
        printed: FleetState | None = None
        refreshes = 0
        is_over = False
        while True:
            seen = status()
            if show is not None:
                show(fleet_view(seen))
            elif seen.state is not printed or refreshes % _LINE_EVERY == 0:
                printed = seen.state
                print_line(fleet_view(seen), console)
            if is_over or seen.state.is_over:
                return
            is_over = wait(refresh)
            refreshes += 1


def _workers(status: FleetStatus) -> str:
    here = len(status.workers)
    if status.wanted:
        waiting = f", {status.waiting} wait for Spark" if status.waiting else ""
        return f"{here} of {status.wanted} workers{waiting}"
    return f"{counted(here, 'worker')} left"


def _owner(worker: WorkerStatus) -> GroupRow:
    is_silent = worker.heard_ago >= _SILENCE
    notes = [
        "" if worker.state is WorkerState.RUNNING else worker.state.value,
        worker.problem or "",
        f"no report for {worker.heard_ago:.0f} s" if is_silent else "",
    ]
    return GroupRow(
        worker.worker_id,
        worker.shards,
        worker.millis_behind_latest,
        worker.records_per_second,
        ", ".join(note for note in notes if note),
        is_silent or worker.problem is not None,
    )


def _stream_names(status: FleetStatus) -> Mapping[str, str]:
    """Return the names of the streams that status and shards have, by identifier.

    Streams of one name, of two accounts or one made after the other, have their identifiers.
    """
    found = {one.identifier: one.name for one in status.streams if one.identifier is not None}
    shards: tuple[FleetShard | UnreadShard, ...] = (*status.shards, *status.unread)
    for shard in shards:
        if identifier := _identifier(shard):
            found.setdefault(identifier, shard.stream)
    count = Counter(found.values())
    return {one: name if count[name] == 1 else one for one, name in found.items()}


def _identifier(shard: FleetShard | UnreadShard) -> str:
    """Return the identifier of the shard's stream; "" for the only stream."""
    return shard.lease.rpartition(":")[0]


def _stream(stream: FleetStream, names: Mapping[str, str]) -> GroupRow:
    notes = [
        f"{stream.unread} unread" if stream.unread else "",
        "cannot be read" if stream.problem is not None else "",
    ]
    return GroupRow(
        names.get(stream.identifier or "", stream.name),
        stream.shards + stream.unread,
        stream.millis_behind_latest,
        stream.records_per_second,
        ", ".join(filter(None, notes)),
        is_amiss=any(notes),
    )


def _unreadable(streams: Sequence[FleetStream]) -> Iterator[str]:
    failing = sorted(
        (one for one in streams if one.problem is not None),
        key=lambda one: -(one.failing_for or 0.0),
    )
    for one in failing[:_MESSAGES]:
        workers = counted(len(one.failing_on), "worker")
        yield (
            f"stream {one.stream} cannot be read for {one.failing_for or 0.0:.0f} s, on {workers}: "
            f"{one.problem}"
        )
    if len(failing) > _MESSAGES:
        yield f"{len(failing) - _MESSAGES} more streams cannot be read"


def _shard(shard: FleetShard, names: Mapping[str, str]) -> ShardRow:
    seconds, standing = shard.processing_for or 0.0, shard.standing_for or 0.0
    note = f"in one call for {seconds:.0f} s" if seconds >= _LONG_CALL else ""
    if not note and standing >= _LONG_CALL:
        note = f"no progress for {standing:.0f} s"
    return ShardRow(
        shard.lease or shard.shard_id,
        shard.worker_id,
        shard.state.value,
        shard.millis_behind_latest,
        shard.records_per_second if shard.state is ShardState.PROCESSING else None,
        note,
        stream=names.get(_identifier(shard), ""),
    )


def _unread(shard: UnreadShard, names: Mapping[str, str]) -> ShardRow:
    by = shard.last_worker_id
    return ShardRow(
        shard.lease or shard.shard_id,
        None,
        "unread",
        shard.millis_behind_latest,
        None,
        f"last read by {by}" if by is not None else "no live owner",
        is_amiss=True,
        stream=names.get(_identifier(shard), ""),
    )


def _failure(failure: Failure) -> str:
    times = "once" if failure.count == 1 else f"{failure.count} times"
    # The place of the failure comes last: it is long and may be cut off.
    return f"{times}: {failure.error}: {failure.what}"
