"""The view of a fleet, and its end."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from rich.console import Console

from sparkinesis.fleet.terminal_view import fleet_view, watch
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
from sparkinesis.terminal.live import render
from sparkinesis.terminal.view import GroupRow

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def worker(
    worker_id: str, state: WorkerState = WorkerState.RUNNING, **given: float
) -> WorkerStatus:
    status = WorkerStatus(worker_id, state, "host", 7, 1, 100, 12.5, 300, 0.5)
    return replace(status, **given)


def failure(number: int, count: int = 1) -> Failure:
    what = f"process_records of shard {number}"
    return Failure(str(number), what, f"ValueError: {number}", "Traceback ...", count, (FIRST,))


RUNNING = FleetStatus(
    "delays",
    "flights",
    FleetState.RUNNING,
    3,
    (
        worker("a"),
        worker("b", WorkerState.STARTING, shards=0, records_per_second=0.0),
        worker("c", WorkerState.LEAVING, heard_ago=7.4),
    ),
    (
        FleetShard(FIRST, "a", ShardState.PROCESSING, 300, 100, 12.5, 2.0),
        FleetShard(SECOND, "c", ShardState.INITIALIZING, None, 0, 0.0, 41.7),
    ),
    (failure(1), failure(2, 3), failure(3), failure(4)),
    ("the worker x was lost", "the worker c took its place"),
)


ONE_STREAM = """\
delays, stream flights  running, 3 of 3 workers
3 shards (1 processing, 1 initializing, 1 unread)  3 owners  ! 12.3 s behind  25

owner  shards    behind  records/s
a           1     0.3 s       12.5
b           0     0.3 s        0.0  starting
c           1     0.3 s       12.5  leaving, no report for 7 s

shard  owner  state           behind  records/s
    2  -      unread        ! 12.3 s          -  last read by x
    0  a      processing       0.3 s       12.5
    1  c      initializing         -          -  in one call for 42 s

once: ValueError: 4: process_records of shard 4
once: ValueError: 3: process_records of shard 3
3 times: ValueError: 2: process_records of shard 2
the worker c took its place
"""
"""As before there were applications of several streams."""


def test_a_shard_that_fails_again_and_again() -> None:
    still = replace(RUNNING.shards[0], processing_for=None, standing_for=61.2)
    (row,) = fleet_view(replace(RUNNING, shards=(still,), unread=())).shards
    assert row.note == "no progress for 61 s"


def test_a_fleet_that_ends_wants_no_workers() -> None:
    ending = replace(RUNNING, state=FleetState.SHUTTING_DOWN, wanted=0)
    assert fleet_view(ending).summary == "shutting down, 3 workers left"


def test_workers_that_wait_for_spark() -> None:
    waiting = replace(RUNNING, wanted=9, waiting=6)
    assert fleet_view(waiting).summary == "running, 3 of 9 workers, 6 wait for Spark"


def test_a_worker_with_a_problem() -> None:
    troubled = replace(worker("a"), problem="the lease table was deleted")
    (owner,) = fleet_view(replace(RUNNING, workers=(troubled,))).owners
    assert owner.note == "the lease table was deleted"
    assert owner.is_amiss


def test_what_is_amiss_and_all_messages_of_a_fleet() -> None:
    view = fleet_view(RUNNING)
    assert [row.name for row in view.owners if row.is_amiss] == ["c"]
    assert view.messages == (
        "once: ValueError: 4: process_records of shard 4",
        "once: ValueError: 3: process_records of shard 3",
        "3 times: ValueError: 2: process_records of shard 2",
        "the worker c took its place",
        "the worker x was lost",
    )


def several(names: str = "web, app", **given: object) -> FleetStatus:
    """A fleet of two streams, whose only shards have the same id."""
    leases = {name: f"1:{name}:17:{FIRST}" for name in ("web", "app")}
    status = replace(
        RUNNING,
        stream=names,
        failures=(),
        notes=(),
        shards=(
            FleetShard(FIRST, "a", ShardState.PROCESSING, 9, 1, 2.0, None, "web", leases["web"]),
        ),
        unread=(UnreadShard(FIRST, None, 700, "app", leases["app"]),),
        streams=(
            FleetStream("web", "1:web:17", 1, 0, 2.0, 9),
            FleetStream("app", "1:app:17", 0, 1, 0.0, 700),
        ),
    )
    return replace(status, **given)


SEVERAL_STREAMS = """\
delays, streams web, app  running, 3 of 3 workers
2 shards (1 processing, 1 unread)  3 owners  0.7 s behind  25.0 records/s

owner  shards    behind  records/s
a           1     0.3 s       12.5
b           0     0.3 s        0.0  starting
c           1     0.3 s       12.5  leaving, no report for 7 s

stream  shards    behind  records/s
app          1     0.7 s        0.0  1 unread
web          1     0.0 s        2.0

shard  owner  state         behind  records/s
app/0  -      unread         0.7 s          -  no live owner
web/0  a      processing     0.0 s        2.0
"""


def test_a_fleet_of_several_streams_shows_stream_and_shard() -> None:
    view = fleet_view(several())
    assert [(row.shard, row.stream) for row in view.shards] == [
        (f"1:web:17:{FIRST}", "web"),
        (f"1:app:17:{FIRST}", "app"),
    ]
    assert [row.name for row in view.streams if row.is_amiss] == ["app"]
    console = pipe(80)
    console.print(render(view, 80, 24))
    assert written(console) == SEVERAL_STREAMS


def test_shards_of_streams_of_one_name_are_told_apart() -> None:
    shards = tuple(
        FleetShard(FIRST, "a", ShardState.PROCESSING, 9, 1, 2.0, None, "web", f"{n}:web:17:{FIRST}")
        for n in (1, 2)
    )
    view = fleet_view(several(shards=shards))
    assert [row.stream for row in view.shards] == ["1:web:17", "2:web:17", "app"]
    assert [row.name for row in view.streams] == ["1:web:17", "app"]


def test_streams_that_cannot_be_read_come_first_and_the_rest_is_counted() -> None:
    streams = tuple(
        FleetStream(f"s{n}", None, problem=f"Error: {n}", failing_for=10.0 * n, failing_on=("a",))
        for n in range(1, 6)
    )
    streams += (replace(streams[0], stream="both", failing_for=90.4, failing_on=("a", "b")),)
    view = fleet_view(several(streams=streams, failures=(failure(1),)))
    assert view.streams[0] == GroupRow("s1", 0, None, 0.0, "cannot be read", is_amiss=True)
    assert view.messages[:5] == (
        "stream both cannot be read for 90 s, on 2 workers: Error: 1",
        "stream s5 cannot be read for 50 s, on 1 worker: Error: 5",
        "stream s4 cannot be read for 40 s, on 1 worker: Error: 4",
        "3 more streams cannot be read",
        "once: ValueError: 1: process_records of shard 1",
    )


def test_the_text_of_a_fleet_of_one_stream() -> None:
    console = pipe(80)
    named = tuple(
        replace(shard, stream="flights", lease=shard.shard_id) for shard in RUNNING.shards
    )
    unread = UnreadShard("shardId-000000000002", "x", 12_300, "flights", "shardId-000000000002")
    console.print(render(fleet_view(replace(RUNNING, shards=named, unread=(unread,))), 80, 24))
    assert written(console) == ONE_STREAM


class Fleet:
    """Returns one status after the other, and then repeats the last one."""

    def __init__(self, *statuses: FleetStatus) -> None:
        self._statuses: Iterator[FleetStatus] = iter(statuses)
        self._last = statuses[0]
        self.asked = 0

    def __call__(self) -> FleetStatus:
        self.asked += 1
        self._last = next(self._statuses, self._last)
        return self._last


def terminal(width: int = 80) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=24, force_terminal=True, _environ={"TERM": "xterm"}
    )


def pipe(width: int = 40) -> Console:
    return Console(file=io.StringIO(), width=width, _environ={})


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


ENDED = replace(RUNNING, state=FleetState.ENDED, workers=(), shards=())
FAILED = replace(ENDED, state=FleetState.FAILED)


@pytest.mark.parametrize("last", [ENDED, FAILED])
def test_it_ends_with_the_fleet_and_leaves_the_last_view(last: FleetStatus) -> None:
    console = terminal()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    watch(Fleet(RUNNING, RUNNING, last), console=console, wait=wait)
    assert waits == [1.0, 1.0]
    before, _, after = written(console).partition("\x1b[?1049l")
    assert before.startswith("\x1b[?1049h"), "the alternate screen"
    assert before.count("running, 3 of 3 workers") == 2
    assert f"{last.state.value}, 0 of 3 workers" in after
    assert "once: ValueError: 4: process_records of shard 4" in after


def test_off_a_terminal_a_line_every_ten_refreshes_and_when_the_state_changes() -> None:
    console = pipe()
    leaving = replace(RUNNING, state=FleetState.SHUTTING_DOWN)
    fleet = Fleet(*[RUNNING] * 22, leaving, ENDED)
    watch(fleet, console=console, refresh=0.5, wait=lambda seconds: seconds != 0.5)
    lines = written(console).splitlines()
    states = [line.split(": ")[1].split(",")[0] for line in lines]
    assert states == ["running"] * 3 + ["shutting down", "ended"]
    assert lines[0] == (
        "delays, stream flights: running, 3 of 3 workers; "
        "2 shards (1 processing, 1 initializing), 3 owners, 0.3 s behind, 25.0 records/s"
    )
    assert "\x1b" not in written(console)


def test_it_looks_once_more_after_the_wait_has_said_enough() -> None:
    fleet = Fleet(RUNNING)
    watch(fleet, console=pipe(), wait=lambda _: True)
    assert fleet.asked == 2


@pytest.mark.parametrize("console", [terminal(), pipe()], ids=["terminal", "pipe"])
def test_an_interrupt_ends_the_view_only(console: Console) -> None:
    """A SparkContext's handler, which cancels all jobs, is not called, and is restored."""
    cancelled: list[int] = []

    def cancel_all_jobs(number: int, _: object) -> None:
        cancelled.append(number)

    def interrupt(_: float) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    before = signal.signal(signal.SIGINT, cancel_all_jobs)
    try:
        watch(Fleet(*[RUNNING] * 5, ENDED), console=console, wait=interrupt)
        assert signal.getsignal(signal.SIGINT) is cancel_all_jobs
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled == []
    assert written(console).count("running, 3 of 3 workers") == (2 if console.is_terminal else 1)
    assert "ended" not in written(console)
