"""L8: a lease row is believed only for the shard of the stream for which it was written."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import InconsistentShardsError, LeaseTableError, SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress, StreamMark
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from tests.failing import Failing
from tests.integration.worker.scene import told
from tests.kcl import put_lease, put_rows, rows_of
from tests.streams import put_at
from tests.timed_stream import HOUR, SHARDS, TimedStream

START = 1_790_000_000_123


@pytest.fixture(scope="module")
def timed_clock() -> ManualClock:
    return ManualClock(START)


def rows(stream: TimedStream) -> dict[str, dict[str, Any]]:
    return rows_of(stream.dynamodb, stream.name)


def place(stream: TimedStream, number: int) -> ExtendedSequenceNumber:
    """The place of a new record in one of two shards."""
    return ExtendedSequenceNumber(put_at(stream.kinesis, stream.name, b"x", 2**127 * number), 0)


def other_client(server: LocalServer, stream: TimedStream, shards: int) -> StreamClient:
    """Another stream, made a while later, whose application has the same table."""
    stream.clock.advance(5_000)
    name = f"other-{stream.name}"
    stream.kinesis.create_stream(StreamName=name, ShardCount=shards)
    address = StreamAddress(name, None, "us-east-1", server.endpoint_url)
    return StreamClient(address, wall_clock_ms=stream.clock)


def syncer_of_other(stream: TimedStream, client: StreamClient) -> ShardSyncer:
    mine, stream.client = stream.client, client
    syncer = stream.shard_syncer(TRIM_HORIZON)
    stream.client = mine
    return syncer


def is_whole(stream: TimedStream, shards: int) -> bool:
    """Whether each shard of the stream has a lease at its beginning, and there are no others."""
    now = stream.leases(TRIM_HORIZON).mark
    found = stream.rows()
    return found.keys() == set(range(shards)) and all(
        row.mark == now
        and row.checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")
        and row.hash_range is not None
        and (row.owner, row.checkpoint_owner, row.pending, row.child_ids) == (None, None, None, ())
        for row in found.values()
    )


@pytest.mark.parametrize("initial", [TRIM_HORIZON, LATEST])
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_leases_of_a_stream_made_anew_are_made_anew(
    two: TimedStream, shards: int, initial: InitialPosition, caplog: pytest.LogCaptureFixture
) -> None:
    two.shard_syncer(initial).sync()
    two.checkpoint(0, place(two, 0))
    before = two.rows()
    two.make_anew(shards)
    two.shard_syncer(initial).sync()
    assert is_whole(two, shards)
    assert {n: row.counter for n, row in two.rows().items() if n in before} == {
        n: row.counter + 2 for n, row in before.items() if n < shards
    }
    (line,) = told(caplog, "was deleted and made anew")
    assert f"What was not read of {before[0].mark} is gone" in line
    # They are its own from then on.
    two.checkpoint(0, at := place(two, 0))
    two.shard_syncer(initial).sync()
    assert two.rows()[0].checkpoint == at
    assert len(told(caplog, "was deleted and made anew")) == 1


def test_an_instant_stays_the_beginning_of_a_stream_made_anew(two: TimedStream) -> None:
    began = AtTimestamp(two.clock())
    two.shard_syncer(began).sync()
    two.make_anew(2)
    two.shard_syncer(began).sync()
    assert two.beginnings() == dict.fromkeys((0, 1), ("AT_TIMESTAMP", began.ms))


def test_nothing_is_skipped_where_a_lease_is_lost_after_a_stream_was_made_anew(
    two: TimedStream,
) -> None:
    two.shard_syncer(LATEST).sync()
    two.make_anew(2)
    two.shard_syncer(LATEST).sync()
    two.delete(1)
    two.shard_syncer(LATEST).sync()
    assert two.rows()[1].checkpoint.sequence_number == "TRIM_HORIZON"


def test_a_stream_that_was_resharded_and_then_made_anew(two: TimedStream) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    two.split(0, at_64ths=16)
    two.split(1, at_64ths=48)
    assert two.end(0, TRIM_HORIZON)
    assert two.end(1, TRIM_HORIZON)
    two.make_anew(4)
    two.split(0, at_64ths=8)
    two.shard_syncer(TRIM_HORIZON).sync()
    assert is_whole(two, 4)


def test_an_audit_finds_that_a_stream_was_made_anew(two: TimedStream) -> None:
    syncer = two.shard_syncer(TRIM_HORIZON)
    syncer.sync()
    two.make_anew(4)
    two.now += 601
    syncer.step(list(two.rows().values()), audits=True)
    assert is_whole(two, 4)
    assert syncer.mark == two.leases(TRIM_HORIZON).mark


def test_an_audit_asks_every_ten_minutes_whether_the_stream_was_made_anew(
    two: TimedStream, timed: LocalServer
) -> None:
    syncer = two.shard_syncer(TRIM_HORIZON)
    began, asked = two.now, list[float]()

    def note(call: Call) -> None:
        if call.operation == "DescribeStreamSummary":
            asked.append(two.now - began)

    timed.kinesis.faults = note
    syncer.sync()
    for _ in range(15):
        two.now += 120
        syncer.step(list(two.rows().values()), audits=True)
    assert asked == [600, 1200, 1800]


def test_a_worker_that_dies_half_way_leaves_the_rest_to_the_next(
    two: TimedStream, timed: LocalServer
) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    two.make_anew(4)
    writes = {"UpdateItem", "PutItem", "DeleteItem"}
    timed.kinesis.faults = Failing(writes, None, then=Fault("AccessDeniedException"))
    with pytest.raises(SparkinesisError):
        two.shard_syncer(TRIM_HORIZON).sync()
    assert not is_whole(two, 4)
    timed.kinesis.faults = None
    two.shard_syncer(TRIM_HORIZON).sync()
    assert is_whole(two, 4)


def test_a_row_that_another_worker_has_made_anew_is_left_alone(two: TimedStream) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    old = two.table.scan()
    two.make_anew(2)
    two.shard_syncer(TRIM_HORIZON).sync()
    two.checkpoint(0, at := place(two, 0))
    two.leases(TRIM_HORIZON).own_rows(old)
    assert two.rows()[0].checkpoint == at


def test_a_restored_table_of_the_same_stream_is_believed_and_one_of_a_former_is_not(
    two: TimedStream,
) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    two.checkpoint(0, at := place(two, 0))
    backup = list(rows(two).values())
    two.checkpoint(0, place(two, 0))
    put_rows(two.dynamodb, two.name, backup)
    two.shard_syncer(TRIM_HORIZON).sync()
    assert two.rows()[0].checkpoint == at
    two.make_anew(2)
    two.shard_syncer(TRIM_HORIZON).sync()
    put_rows(two.dynamodb, two.name, backup)
    two.shard_syncer(TRIM_HORIZON).sync()
    assert is_whole(two, 2)


def test_rows_of_a_later_stream_of_the_name_are_left_alone(two: TimedStream) -> None:
    """The service may still tell of the stream that was deleted."""
    leases = two.leases(TRIM_HORIZON)
    assert leases.mark is not None
    leases.mark = StreamMark.of(two.client.stream_arn(), leases.mark.created_ms + HOUR)
    (first, *_), _ = two.client.list_shards()
    leases.create([new_lease(first, TRIM_HORIZON)])
    before = rows(two)
    with pytest.raises(InconsistentShardsError, match="another creation time"):
        two.shard_syncer(TRIM_HORIZON).sync()
    assert rows(two) == before


# --- Other applications


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_another_streams_leases_are_refused_and_left_alone(
    two: TimedStream, timed: LocalServer, shards: int
) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    two.checkpoint(0, place(two, 0))
    other = syncer_of_other(two, other_client(timed, two, shards))
    before = rows(two)
    for attempt in (other.sync, other.settle):
        with pytest.raises(LeaseTableError, match=f"of stream '{two.name}' .* 'other-{two.name}'"):
            attempt()
    two.now += 601
    with pytest.raises(LeaseTableError, match="no lease was taken"):
        other.step(list(two.rows().values()), audits=True)
    assert rows(two) == before
    two.shard_syncer(TRIM_HORIZON).sync()
    assert rows(two) == before


def test_of_two_applications_that_start_at_once_the_second_is_refused(
    two: TimedStream, timed: LocalServer
) -> None:
    """Both have seen the table empty."""
    client = other_client(timed, two, 2)
    two.shard_syncer(TRIM_HORIZON).sync()
    before = rows(two)
    with pytest.raises(LeaseTableError, match="each would overwrite the other's checkpoints"):
        syncer_of_other(two, client).sync(table=TableScan())
    assert rows(two) == before


@pytest.mark.parametrize("shards", [2, 4])
def test_javas_leases_of_another_stream_are_refused_where_they_show_it(
    two: TimedStream, timed: LocalServer, shards: int
) -> None:
    """By a checkpoint, and where there is none, by the hash keys."""
    listed, _ = two.client.list_shards()
    for number, shard in enumerate(listed):
        assert shard.hash_range is not None
        first, last = map(str, shard.hash_range)
        keys = {"startingHashKey": {"S": first}, "endingHashKey": {"S": last}}
        at = place(two, number).sequence_number if shards == 2 else "TRIM_HORIZON"
        put_lease(two.dynamodb, two.name, shard.id, at, attributes=keys)
    before = rows(two)
    why = "before the shard's first sequence number" if shards == 2 else "hash keys"
    with pytest.raises(LeaseTableError, match=f"{SHARDS[0]}: .*{why}"):
        syncer_of_other(two, other_client(timed, two, shards)).sync()
    two.shard_syncer(TRIM_HORIZON).sync()
    assert rows(two) == before


def test_javas_rows_beside_ours_are_made_anew_with_them(two: TimedStream) -> None:
    two.shard_syncer(TRIM_HORIZON).sync()
    put_lease(two.dynamodb, two.name, SHARDS[1], place(two, 1).sequence_number)
    two.make_anew(2)
    two.shard_syncer(TRIM_HORIZON).sync()
    assert is_whole(two, 2)


def test_a_row_gets_the_streams_name_when_it_is_taken(two: TimedStream) -> None:
    mark = two.leases(TRIM_HORIZON).mark
    for number in (0, 1):
        put_lease(two.dynamodb, two.name, SHARDS[number], "TRIM_HORIZON")
    row = two.rows()[0]
    assert two.table.write(requests.take(row, "me", mark=mark)).mark == mark
    other = StreamMark("r", "1", "s", 1)
    assert two.table.write(requests.take(two.rows()[0], "me", mark=other)).mark == mark
