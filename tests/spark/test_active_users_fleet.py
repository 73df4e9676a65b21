"""The example of who is active now, as a fleet: what goes through its table, and a whole run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from examples.active_users.board import Board, Eviction
from examples.active_users.fleet import TABLE, Heartbeats, Table, Watcher
from examples.active_users.listening import ShardName
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.processors.processor import ProcessorShard
from tests.active_users import run_active_users

REGION = "eu-west-1"
SILENCE = 120.0
A, B = ShardName("web", "0"), ShardName("mobile", "0")
"""Two shards of one id."""
BEGAN = datetime(2026, 11, 21, tzinfo=timezone.utc).timestamp()


class Time:
    """A clock that moves when it is told to; epoch seconds."""

    now = BEGAN

    def __call__(self) -> float:
        return self.now


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


def listener(endpoint: str, shard: ShardName, worker: str = "one") -> Heartbeats:
    heartbeats = Heartbeats(REGION, endpoint, BEGAN, SILENCE)
    start = ExtendedSequenceNumber("TRIM_HORIZON")
    heartbeats.initialize(ProcessorShard(shard.id, "active-users", shard.stream, worker, start))
    return heartbeats


def batch(*beats: tuple[str, float], at: float) -> RecordBatch:
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
        records, stream="s", shard_id="a", millis_behind_latest=0, fetched_ms=round(at * 1000)
    )
    return made


def process(heartbeats: Heartbeats, *beats: tuple[str, float], at: float) -> None:
    heartbeats.process_records(batch(*beats, at=at), None)  # type: ignore[arg-type]


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
    endpoint: str, table: Table
) -> None:
    clock = Time()
    board = Board(SILENCE, clock)
    watcher = Watcher(table, board, SILENCE, 1.0, clock)
    one, two = listener(endpoint, A, "one"), listener(endpoint, B, "two")
    process(one, ("ann", BEGAN), ("bob", BEGAN + 100), at=BEGAN)
    process(two, at=BEGAN)
    watcher.look()
    clock.now += SILENCE + 1
    process(one, at=clock.now)
    watcher.look()
    assert board.active == {"ann": BEGAN, "bob": BEGAN + 100}, "b was not read for as long"
    process(two, at=clock.now)
    watcher.look()
    assert board.active == {"bob": BEGAN + 100}
    assert board.evictions == [Eviction("ann", BEGAN, clock.now)]
    assert table.users() == board.active
    assert watcher.workers == {"one", "two"}


def test_a_shard_that_changes_hands_begins_the_silence_anew(endpoint: str, table: Table) -> None:
    clock = Time()
    board = Board(SILENCE, clock)
    watcher = Watcher(table, board, SILENCE, 1.0, clock)
    process(listener(endpoint, A, "one"), ("ann", BEGAN), at=BEGAN)
    watcher.look()
    clock.now += SILENCE - 1
    two = listener(endpoint, A, "two")
    watcher.look()
    clock.now += SILENCE - 1
    process(two, at=clock.now)
    watcher.look()
    assert board.active.keys() == {"ann"}
    clock.now += 2
    process(two, at=clock.now)
    watcher.look()
    assert board.active == {}


def test_nobody_is_silent_while_nobody_listens(table: Table) -> None:
    clock = Time()
    board = Board(SILENCE, clock)
    table.hear("ann", BEGAN)
    watcher = Watcher(table, board, SILENCE, 1.0, clock)
    clock.now += 10 * SILENCE
    watcher.look()
    assert board.active == {"ann": BEGAN}


@pytest.mark.long
@pytest.mark.parametrize("course", [["--short"], []])
def test_old_heartbeats_are_skipped_and_nobody_is_evicted_wrongly(course: list[str]) -> None:
    run_active_users("--fleet", *course, minute=1.5)
