"""The example of who is active now, as a record processor: its eviction, and a whole run of it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from examples.active_users.board import Board, Eviction
from examples.active_users.listening import ShardName
from examples.active_users.processor import ActiveUsers
from examples.active_users.users import MOBILE, STREAMS, WEB, Sent, stream_of, was_silent
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from tests.active_users import run_active_users

SILENCE = 120.0
A, B, C = ShardName("web", "0"), ShardName("mobile", "0"), ShardName("web", "1")


class Time:
    """A clock that moves when it is told to; epoch seconds."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, tzinfo=timezone.utc).timestamp()

    def __call__(self) -> float:
        return self.now


def hear(
    users: ActiveUsers, shard: ShardName, *beats: tuple[str, float], at: float, behind: float = 0.0
) -> None:
    """A batch of heartbeats (who, and when it arrived) that was fetched then."""
    records = [
        Record(
            data=b"heartbeat",
            partition_key=user,
            sequence_number="1",
            approximate_arrival_timestamp=arrived,
        )
        for user, arrived in beats
    ]
    batch, _ = make_batch(
        records,
        stream=shard.stream,
        shard_id=shard.id,
        millis_behind_latest=round(behind * 1000),
        fetched_ms=round(at * 1000),
    )
    users.hear(shard, batch)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def board(time: Time) -> Board:
    return Board(SILENCE, time)


@pytest.fixture
def users(board: Board, time: Time) -> ActiveUsers:
    """Of an application that listens to two shards of one id, of two streams."""
    users = ActiveUsers(board, SILENCE, time)
    users.listen(A)
    users.listen(B)
    return users


def test_a_user_is_evicted_after_the_silence_though_no_records_come(
    users: ActiveUsers, board: Board, time: Time
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
    users: ActiveUsers, board: Board, time: Time
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
    users: ActiveUsers, board: Board, time: Time
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
    users: ActiveUsers, board: Board, time: Time
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


def test_old_heartbeats_are_skipped_and_nobody_is_evicted_wrongly() -> None:
    run_active_users(minute=1.0)
