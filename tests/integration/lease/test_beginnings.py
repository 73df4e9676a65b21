"""Where shards without a lease begin, after outages, crashes and hands in the table (W3, L4).

A Kinesis and a DynamoDB over HTTP; the clock of the stream is the test's.
"""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.lease.rules.lease_start import ANY_AGE
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from tests.kcl import put_lease
from tests.streams import put_at
from tests.timed_stream import HOUR, SHARDS, TimedStream


def test_a_first_start_that_dies_between_leases_keeps_its_instant(two: TimedStream) -> None:
    class Dies(LeaseTable):
        def create(self, *lease: Any) -> bool:
            super().create(*lease)
            raise KeyboardInterrupt

    table = Dies(two.name, "us-east-1", two.table.endpoint)
    first_ms = two.clock()
    with pytest.raises(KeyboardInterrupt):
        two.shard_syncer(table=table).sync()
    assert two.beginnings() == {0: ("LATEST", first_ms)}
    two.clock.advance(HOUR)
    two.shard_syncer().sync()
    assert two.beginnings() == dict.fromkeys((0, 1), ("LATEST", first_ms))


def test_who_could_not_read_the_stream_at_once_goes_by_the_instant_of_others(
    two: TimedStream,
) -> None:
    """What LATEST means to a worker that was told later would skip records."""
    first_ms = two.clock()
    two.shard_syncer().sync()
    two.delete(1)
    two.clock.advance(HOUR)
    two.shard_syncer(first=AtTimestamp(two.clock())).sync()
    assert two.beginnings() == dict.fromkeys((0, 1), ("LATEST", first_ms))


def test_the_instant_of_who_could_not_read_the_stream_at_once_counts_for_others(
    two: TimedStream,
) -> None:
    """Without it, they would begin with the oldest record, as nothing may be skipped."""
    first_ms = two.clock()
    two.clock.advance(HOUR)
    two.shard_syncer(first=AtTimestamp(first_ms)).sync()
    two.delete(1)
    two.shard_syncer().sync()
    assert two.beginnings() == {0: ("AT_TIMESTAMP", first_ms), 1: ("LATEST", first_ms)}


@pytest.mark.parametrize(("dies", "is_resharded"), [(True, False), (False, True), (True, True)])
def test_of_two_first_starts_the_earlier_instant_counts(
    two: TimedStream, dies: bool, is_resharded: bool
) -> None:
    """The second has looked at the empty table before, and lists the shards an hour later."""
    first_ms = two.clock()

    class Late(LeaseTable):
        def scan(self, *more: Any, **named: Any) -> Any:
            found = super().scan(*more, **named)
            if not found.leases:
                two.shard_syncer().sync()
                if dies:  # before it has made its second lease
                    two.delete(1)
                two.clock.advance(HOUR)
                if is_resharded:
                    two.split(0, at_64ths=16)
            return found

    two.shard_syncer(table=Late(two.name, "us-east-1", two.table.endpoint)).sync()
    assert two.beginnings() == dict.fromkeys((0, 1), ("LATEST", first_ms))


@pytest.mark.parametrize(("initial", "scans"), [(TRIM_HORIZON, 1), (LATEST, 2)])
def test_a_stream_without_its_first_shards_is_begun_after_one_look_where_nothing_is_skipped(
    one: TimedStream, initial: InitialPosition, scans: int
) -> None:
    one.split(0, at_64ths=32)
    one.clock.advance(30 * HOUR)  # the first shard has expired
    looks = []

    class Counts(LeaseTable):
        def scan(self, *more: Any, **named: Any) -> Any:
            looks.append(named)
            return super().scan(*more, **named)

    one.shard_syncer(initial, table=Counts(one.name, "us-east-1", one.table.endpoint)).sync()
    assert one.beginnings().keys() == {1, 2}
    assert looks == [{"consistent": True}] * scans, "another look may lack what is there"


@pytest.mark.parametrize("last_split", [20, 2])
def test_what_two_reshards_left_behind_is_read_since_the_application_began(
    one: TimedStream, last_split: int, caplog: pytest.LogCaptureFixture
) -> None:
    """All workers are away for longer than records are kept, and the shard is split twice."""
    first_ms = one.clock()
    one.shard_syncer().sync()
    one.checkpoint(0)
    one.clock.advance(HOUR)
    one.split(0, at_64ths=32)
    one.clock.advance((last_split - 1) * HOUR)
    one.split(1, at_64ths=16)
    one.split(2, at_64ths=48)
    one.clock.advance((30 - last_split) * HOUR)
    one.checkpoint(0, ExtendedSequenceNumber(SHARD_END))  # so says who finds it expired
    one.shard_syncer().sync()
    # The children are kept in one case, and in the other only what came from them.
    if last_split == 20:
        assert one.beginnings() == dict.fromkeys((1, 2), ("TRIM_HORIZON", None))
    else:
        assert one.beginnings() == dict.fromkeys((3, 4, 5, 6), ("LATEST", first_ms))
    told = {n for n in (1, 2) if SHARDS[n] in caplog.text}
    assert told == (set() if last_split == 20 else {1, 2}), caplog.text
    assert ("were removed unread" in caplog.text) is bool(told)


def test_beside_a_kcl_that_has_not_begun_latest_is_now(two: TimedStream) -> None:
    """It begins behind a record: the KCL would take the word for another moment."""
    put_lease(two.dynamodb, two.name, SHARDS[0], "LATEST")
    old = put_at(two.kinesis, two.name, b"old", 2**127)
    two.clock.advance(HOUR)
    two.shard_syncer().sync()
    assert two.beginnings() == {0: ("LATEST", None)}
    made = two.rows()[1]
    assert (made.checkpoint, made.application_ms) == (ExtendedSequenceNumber(old), two.clock())


def test_the_first_instant_outlives_checkpoints_and_leases(one: TimedStream) -> None:
    first_ms = one.clock()
    one.shard_syncer().sync()
    one.checkpoint(0)
    one.clock.advance(HOUR)
    one.split(0, at_64ths=32)
    assert one.end(0)
    for number in (1, 2):
        one.checkpoint(number)
    one.delete(0)  # as the clean-up does
    one.delete(2)
    one.shard_syncer().sync()
    assert one.beginnings() == {2: ("LATEST", first_ms)}
    assert one.rows()[1].application_ms == first_ms


def test_children_tell_when_their_parent_ended_and_that_their_records_came_later(
    one: TimedStream,
) -> None:
    """By that, a record that has expired unread is missed, or known not to have been there."""
    first_ms = one.clock()
    one.shard_syncer().sync()
    one.clock.advance(HOUR)
    one.split(0, at_64ths=32)
    ended = ShardEnd(seen_ms=one.clock() + 5, not_before_ms=one.clock() - 7)
    assert one.end(0, end=ended)
    for number in (1, 2):
        row = one.rows()[number]
        assert (row.made_ms, row.known) == (one.clock() + 5, AtTimestamp(one.clock() - 7))
        assert row.application_ms == first_ms


def test_a_merged_shards_lease_tells_when_the_shards_were_listed(two: TimedStream) -> None:
    """A parent that got its lease at the other one's end may have been there for long."""
    first_ms = two.clock()
    two.shard_syncer().sync()
    two.clock.advance(HOUR)
    two.merge(0, 1)
    assert two.end(0, end=ShardEnd(seen_ms=first_ms + 1, not_before_ms=first_ms + 2))
    row = two.rows()[2]
    assert (row.made_ms, row.known) == (two.clock(), AtTimestamp(first_ms + 2))
    assert row.application_ms == first_ms


def test_children_of_a_shard_that_nobody_saw_end_are_of_no_other_stream(
    one: TimedStream, caplog: pytest.LogCaptureFixture
) -> None:
    """Their parent had expired: all that their leases tell is that nothing is known."""
    one.shard_syncer().sync()
    one.split(0, at_64ths=32)
    assert one.end(0)
    child = one.rows()[1]
    assert (child.known, child.made_ms) == (ANY_AGE, None)
    one.shard_syncer().sync()
    assert "that was deleted" not in caplog.text
