"""The example of who is active now: its processor, its query, its fleet, and whole runs of each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from examples.active_users.board import Board, Eviction
from examples.active_users.fleet import TABLE, Table, Watcher
from examples.active_users.fleet import Heartbeats as Listener
from examples.active_users.listening import ShardName
from examples.active_users.processor import ActiveUsers, Heartbeats, application
from examples.active_users.query import update_user
from examples.active_users.users import MOBILE, STREAMS, WEB, Sent, stream_of, was_silent
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from sparkinesis.stream.page import Record
from sparkinesis.testing import Sandbox
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.processors.processor import ProcessorShard
from tests import pace
from tests.clocks import MovedClock

ROOT = Path(__file__).parents[3]
REGION = "eu-west-1"
SILENCE = 120.0
SILENCE_MS = 120_000
BEGAN = datetime(2026, 11, 21, tzinfo=timezone.utc).timestamp()
NOW_MS = 1_800_000_000_000
A, B = ShardName("web", "0"), ShardName("mobile", "0")
"""Two shards of one id, of two streams."""
_LONGEST_MINUTE = 10.0


def batch(
    shard: ShardName, *beats: tuple[str, float], at: float, behind: float = 0.0
) -> RecordBatch:
    """Heartbeats (who, and when it arrived) that were fetched then."""
    records = [
        Record(
            data=b"heartbeat",
            partition_key=user,
            sequence_number="1",
            approximate_arrival_timestamp=arrived,
        )
        for user, arrived in beats
    ]
    made, _ = make_batch(
        records,
        stream=shard.stream,
        shard_id=shard.id,
        millis_behind_latest=round(behind * 1000),
        fetched_ms=round(at * 1000),
    )
    return made


def hear(users: ActiveUsers, shard: ShardName, *beats: tuple[str, float], **when: float) -> None:
    users.hear(shard, batch(shard, *beats, **when))


@pytest.fixture
def time() -> MovedClock:
    """Epoch seconds."""
    return MovedClock(BEGAN)


@pytest.fixture
def board(time: MovedClock) -> Board:
    return Board(SILENCE, time)


@pytest.fixture
def users(board: Board, time: MovedClock) -> ActiveUsers:
    """Of an application that listens to both shards."""
    users = ActiveUsers(board, SILENCE, time)
    users.listen(A)
    users.listen(B)
    return users


def test_a_user_is_evicted_after_the_silence_though_no_records_come(
    users: ActiveUsers, board: Board, time: MovedClock
) -> None:
    began = time.now
    hear(users, A, ("ann", began), at=time.now)
    for shard in (A, B):
        time.now = began + SILENCE
        hear(users, shard, at=time.now)
    assert board.active == {"ann": began}
    time.now = began + SILENCE + 1
    hear(users, A, at=time.now)
    hear(users, B, at=time.now)
    assert board.active == {}
    assert board.evictions == [Eviction("ann", began, time.now)]


def test_a_heartbeat_of_either_stream_keeps_a_user_active(
    users: ActiveUsers, board: Board, time: MovedClock
) -> None:
    began = time.now
    for minute in range(8):
        time.now = began + 60 * minute
        hear(users, (A, B)[minute % 2], ("ann", time.now), at=time.now)
        hear(users, (B, A)[minute % 2], at=time.now)
    assert board.active == {"ann": time.now}
    assert board.evictions == []
    assert board.heartbeats == {"web": 4, "mobile": 4}


def test_users_have_a_browser_a_phone_or_both() -> None:
    by_user = {
        frozenset(stream_of(f"user-{n:02}", minute) for minute in range(6)) for n in range(1, 31)
    }
    assert by_user == {frozenset({WEB}), frozenset({MOBILE}), frozenset(STREAMS)}


def test_nobody_is_silent_because_a_shard_was_not_read(
    users: ActiveUsers, board: Board, time: MovedClock
) -> None:
    began = time.now
    hear(users, B, ("bob", began), at=time.now)
    time.now += 300
    hear(users, A, at=time.now)
    assert board.active == {"bob": began}, "b was not read for as long"
    hear(users, B, ("bob", began + 60), behind=200, at=time.now)
    assert board.active == {"bob": began + 60}, "b was read up to 100 s only"
    hear(users, B, at=time.now)
    assert board.active == {}


def test_nobody_is_silent_because_batches_came_late(
    users: ActiveUsers, board: Board, time: MovedClock
) -> None:
    began = time.now
    hear(users, A, ("ann", began), at=time.now)
    time.now += 180
    hear(users, B, at=time.now)
    for minute in range(1, 4):  # fetched in time, and delivered at once
        hear(users, A, at=began + 60 * minute - 1)
        hear(users, A, ("ann", began + 60 * minute), at=began + 60 * minute)
    assert board.evictions == []


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ([10, 70, 130, 190], False),
        ([10, 70], True),
        ([10, 70, 191, 251], True),
        ([], True),
    ],
)
def test_an_eviction_is_right_if_there_was_a_silence_before_it(
    sent: list[int], right: bool
) -> None:
    """``sent``: when heartbeats arrived; that at 10 s was heard, and at 250 s the user evicted."""
    beats = [Sent(1000 * at - 5, 1000 * at + 5) for at in sent]
    assert was_silent(beats, Eviction("ann", 10.0, 250.0), SILENCE) == right


def test_a_silent_user_is_evicted_though_the_worker_crashes(kinesis: Sandbox) -> None:
    board = Board(120, kinesis.time)
    users = ActiveUsers(board, 120, kinesis.time)
    app = application(["web"], "eu-west-1", kinesis.endpoint, 60, lambda: Heartbeats(users))
    with kinesis.run(app) as run:
        run.put([("ann", b""), ("bob", b"")])
        run.crash()
        kinesis.advance(60)
        run.put([("ann", b"")])
        kinesis.advance(61)
        assert list(board.active) == ["ann"]
        kinesis.advance(60)
        assert [one.user for one in board.evictions] == ["bob", "ann"]


class State:
    """The state of one user in one batch, as Spark hands it in."""

    def __init__(self, stored: tuple[int] | None, timed_out: bool = False) -> None:
        self.stored = stored
        self.hasTimedOut = timed_out
        self.timeout: int | None = None

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def get(self) -> tuple[int] | None:
        return self.stored

    def getCurrentProcessingTimeMs(self) -> int:
        return NOW_MS

    def update(self, stored: tuple[int]) -> None:
        self.stored = stored

    def remove(self) -> None:
        self.stored = None

    def setTimeoutTimestamp(self, ms: int) -> None:
        self.timeout = ms


def update(state: Any, *arrivals: int) -> list[dict[str, Any]]:
    batch = pd.DataFrame(
        {
            "approximateArrivalTimestamp": pd.to_datetime(list(arrivals), unit="ms"),
            "stream": STREAMS[: len(arrivals)],
        }
    )
    rows = update_user(("ann",), iter([batch]), state, silence_ms=SILENCE_MS)
    return [row for frame in rows for row in frame.to_dict("records")]


@pytest.mark.parametrize("before", [None, (NOW_MS - 5_000,), (NOW_MS - 100,)])
def test_heartbeats_set_the_timer_anew(before: tuple[int] | None) -> None:
    state = State(before)
    arrivals = [NOW_MS - 900, NOW_MS - 300]
    (row,) = update(state, *arrivals)
    assert row == {
        "user": "ann",
        "active": True,
        "arrivals": arrivals,
        "streams": list(STREAMS),
        "planned": NOW_MS,
    }
    last = max(*arrivals, *(before or ()))
    assert state.stored == (last,)
    assert state.timeout == last + SILENCE_MS


def test_the_timer_evicts() -> None:
    state = State((NOW_MS - SILENCE_MS,), timed_out=True)
    (row,) = update(state)
    assert (row["active"], row["arrivals"]) == (False, [NOW_MS - SILENCE_MS])
    assert row["streams"] == []
    assert state.stored is None


@pytest.mark.parametrize(("planned", "old"), [(990.0, 0), (1000.0, 1)])
def test_heartbeats_of_a_batch_that_an_earlier_run_planned_are_not_old(
    planned: float, old: int
) -> None:
    """That run's batches took long, and Spark runs its last one again as it was planned."""
    board = Board(silence=120.0, clock=lambda: 1000.0)
    board.hear("ann", 800.0, "web", planned)
    assert (board.heartbeats, board.old) == ({"web": 1}, old)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as server:
        yield server


@pytest.fixture
def endpoint(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    Table(REGION, server.endpoint_url).prepare()
    yield server.endpoint_url
    server.client("dynamodb", REGION).delete_table(TableName=TABLE)


@pytest.fixture
def table(endpoint: str) -> Table:
    return Table(REGION, endpoint)


def listener(endpoint: str, shard: ShardName, worker: str = "one") -> Listener:
    heartbeats = Listener(REGION, endpoint, BEGAN, SILENCE)
    start = ExtendedSequenceNumber("TRIM_HORIZON")
    heartbeats.initialize(ProcessorShard(shard.id, "active-users", shard.stream, worker, start))
    return heartbeats


def process(heartbeats: Listener, *beats: tuple[str, float], at: float) -> None:
    heartbeats.process_records(batch(A, *beats, at=at), None)  # type: ignore[arg-type]


def test_the_latest_heartbeat_counts_whichever_worker_tells_of_it_first(
    endpoint: str, table: Table
) -> None:
    one, two = listener(endpoint, A, "one"), listener(endpoint, B, "two")
    process(one, ("ann", BEGAN + 5), ("ann", BEGAN + 65), at=BEGAN + 70)
    process(two, ("ann", BEGAN + 30), ("bob", BEGAN + 31), at=BEGAN + 71)
    assert table.users() == {"ann": BEGAN + 65, "bob": BEGAN + 31}


def test_a_shard_item_counts_what_was_processed_and_what_of_it_was_old(
    endpoint: str, table: Table
) -> None:
    one = listener(endpoint, A)
    process(one, ("ann", BEGAN - SILENCE - 1), ("ann", BEGAN - SILENCE), at=BEGAN + 1)
    process(one, ("bob", BEGAN + 2), at=BEGAN + 3)
    (heard,) = table.shards().values()
    assert (heard.heartbeats, heard.old, heard.read_until) == (3, 1, BEGAN + 3)
    board = Board(SILENCE)
    Watcher(table, board, SILENCE, 1.0).look()
    assert (board.heartbeats, board.old) == ({"web": 3}, 1)
    table.prepare()
    assert table.shards() == {}, "the next run counts for itself"
    assert table.users().keys() == {"ann", "bob"}, "but it knows who was active"


def test_who_lost_a_shard_does_not_silence_who_has_it_now(endpoint: str, table: Table) -> None:
    one = listener(endpoint, A, "one")
    two = listener(endpoint, A, "two")
    one.lease_lost()
    assert str(table.shards()[A].reader).startswith("two ")
    two.lease_lost()
    assert table.shards()[A].reader is None


def test_a_user_is_evicted_after_the_silence_by_what_all_workers_read(
    endpoint: str, table: Table, board: Board, time: MovedClock
) -> None:
    watcher = Watcher(table, board, SILENCE, 1.0, time)
    one, two = listener(endpoint, A, "one"), listener(endpoint, B, "two")
    process(one, ("ann", BEGAN), ("bob", BEGAN + 100), at=BEGAN)
    process(two, at=BEGAN)
    watcher.look()
    time.now += SILENCE + 1
    process(one, at=time.now)
    watcher.look()
    assert board.active == {"ann": BEGAN, "bob": BEGAN + 100}, "b was not read for as long"
    process(two, at=time.now)
    watcher.look()
    assert board.active == {"bob": BEGAN + 100}
    assert board.evictions == [Eviction("ann", BEGAN, time.now)]
    assert table.users() == board.active
    assert watcher.workers == {"one", "two"}


def test_a_shard_that_changes_hands_begins_the_silence_anew(
    endpoint: str, table: Table, board: Board, time: MovedClock
) -> None:
    watcher = Watcher(table, board, SILENCE, 1.0, time)
    process(listener(endpoint, A, "one"), ("ann", BEGAN), at=BEGAN)
    watcher.look()
    time.now += SILENCE - 1
    two = listener(endpoint, A, "two")
    watcher.look()
    time.now += SILENCE - 1
    process(two, at=time.now)
    watcher.look()
    assert board.active.keys() == {"ann"}
    time.now += 2
    process(two, at=time.now)
    watcher.look()
    assert board.active == {}


def test_nobody_is_silent_while_nobody_listens(
    table: Table, board: Board, time: MovedClock
) -> None:
    table.hear("ann", BEGAN)
    watcher = Watcher(table, board, SILENCE, 1.0, time)
    time.now += 10 * SILENCE
    watcher.look()
    assert board.active == {"ann": BEGAN}


@pytest.mark.parametrize(
    ("arguments", "minute"),
    [
        ((), 1.0),
        *(
            pytest.param((door, *course), minute, marks=pytest.mark.long)
            for door, minute in (("--spark", 1.0), ("--fleet", 1.5))
            for course in (("--short",), ())
        ),
    ],
)
def test_old_heartbeats_are_skipped_and_nobody_is_evicted_wrongly(
    arguments: tuple[str, ...], minute: float
) -> None:
    """The example checks itself, and says so.

    minute: the seconds of its minute on an idle machine. What its application does not do within a
    minute makes an eviction wrong.
    """
    minute = min(pace.seconds(minute), _LONGEST_MINUTE)
    done = subprocess.run(
        [sys.executable, "-m", "examples.active_users", *arguments, "--minute", f"{minute:.1f}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=pace.seconds(480) + 60 * minute,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "active users: OK"
    assert any(line.endswith("heartbeats processed, 0 of them old") for line in lines)
    assert any(line.endswith("evictions, 0 of them wrong") for line in lines)
    assert not any(line.startswith("0 heartbeats") for line in lines)
    (by_stream,) = [line for line in lines if line.startswith("they are ")]
    parts = [part.split(" of ") for part in by_stream.removeprefix("they are ").split(" and ")]
    assert {stream for _, stream in parts} == {"heartbeats-web", "heartbeats-mobile"}
    assert "0" not in {count for count, _ in parts}
