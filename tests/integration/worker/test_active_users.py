"""The example of who is active now, as a record processor: its eviction, and a whole run of it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from examples.active_users.board import Board, Eviction, evicted_at
from examples.active_users.processor import ActiveUsers
from examples.active_users.users import Sent, was_silent
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from tests.active_users import run_active_users

SILENCE = 120.0


class Time:
    """A clock that moves when it is told to; epoch seconds."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, tzinfo=timezone.utc).timestamp()

    def __call__(self) -> float:
        return self.now


def hear(
    users: ActiveUsers, shard: str, *beats: tuple[str, float], at: float, behind: float = 0.0
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
        stream="s",
        shard_id=shard,
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
    """Of an application that listens to two shards."""
    users = ActiveUsers(board, SILENCE, time)
    users.listen("a")
    users.listen("b")
    return users


@pytest.mark.parametrize(
    ("heard", "since", "at"), [(1000.0, 0.0, 1120.0), (1000.0, 1090.0, 1210.0)]
)
def test_silence_counts_only_while_somebody_listens(heard: float, since: float, at: float) -> None:
    assert evicted_at(heard, since, SILENCE) == at


def test_a_user_is_evicted_after_the_silence_though_no_records_come(
    users: ActiveUsers, board: Board, time: Time
) -> None:
    began = time.now
    hear(users, "a", ("ann", began), at=time.now)
    for shard in ("a", "b"):
        time.now = began + SILENCE
        hear(users, shard, at=time.now)
    assert board.active == {"ann": began}
    time.now = began + SILENCE + 1
    hear(users, "a", at=time.now)
    hear(users, "b", at=time.now)
    assert board.active == {}
    assert board.evictions == [Eviction("ann", began, time.now)]


def test_nobody_is_silent_because_a_shard_was_not_read(
    users: ActiveUsers, board: Board, time: Time
) -> None:
    began = time.now
    hear(users, "b", ("bob", began), at=time.now)
    time.now += 300
    hear(users, "a", at=time.now)
    assert board.active == {"bob": began}, "b was not read for as long"
    hear(users, "b", ("bob", began + 60), behind=200, at=time.now)
    assert board.active == {"bob": began + 60}, "b was read up to 100 s only"
    hear(users, "b", at=time.now)
    assert board.active == {}


def test_nobody_is_silent_because_batches_came_late(
    users: ActiveUsers, board: Board, time: Time
) -> None:
    began = time.now
    hear(users, "a", ("ann", began), at=time.now)
    time.now += 180
    hear(users, "b", at=time.now)
    for minute in range(1, 4):  # fetched in time, and delivered at once
        hear(users, "a", at=began + 60 * minute - 1)
        hear(users, "a", ("ann", began + 60 * minute), at=began + 60 * minute)
    assert board.evictions == []


def test_a_shard_that_changes_hands_begins_the_silence_anew(
    users: ActiveUsers, board: Board, time: Time
) -> None:
    hear(users, "a", ("ann", time.now), at=time.now)
    time.now += SILENCE - 1
    users.stop_listening("a")
    time.now += 10
    hear(users, "b", at=time.now)
    users.listen("c")
    time.now += SILENCE - 1
    hear(users, "b", at=time.now)
    hear(users, "c", at=time.now)
    assert board.active.keys() == {"ann"}
    time.now += 2
    hear(users, "b", at=time.now)
    hear(users, "c", at=time.now)
    assert board.active.keys() == set()


def test_heartbeats_from_before_the_silence_are_counted_as_old(
    users: ActiveUsers, board: Board, time: Time
) -> None:
    started = time.now
    hear(users, "a", ("ann", started - SILENCE - 1), ("ann", started - SILENCE), at=time.now)
    assert (board.heartbeats, board.old) == (2, 1)


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
