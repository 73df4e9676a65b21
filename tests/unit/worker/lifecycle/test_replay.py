"""What a replay reads, when it has read everything, and by which settings."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from sparkinesis import Application, LeaseTableOptions, WorkerOptions
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.address import check_table_name
from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.worker.lifecycle.replay import is_read, settings_of, table_name
from sparkinesis.worker.lifecycle.settings import ReadRange
from sparkinesis.worker.lifecycle.shard.selection import is_beyond, within
from tests.tallies import Tallied

NOW = datetime(2026, 11, 26, 8, 30, tzinfo=timezone.utc)
RANGE = ReadRange(1_000_000, 2_000_000)


def record(ms: int | None) -> Record:
    arrived = None if ms is None else ms / 1000
    return Record(
        data=b"", partition_key="k", sequence_number="1", approximate_arrival_timestamp=arrived
    )


@pytest.mark.parametrize(
    ("last", "behind", "service_ms", "at_end", "beyond"),
    [
        (2_010_000, 5, 9_000_000, False, True),
        (2_009_999, 5, 9_000_000, False, False),  # arrival times are in no order
        (2_009_999, 0, 2_000_000, False, True),  # at the tip: nothing more had arrived
        (None, 0, 2_000_000, False, True),
        (None, 0, 1_999_999, False, False),
        (None, 5, 9_000_000, False, False),
        (None, None, 9_000_000, False, False),
        (None, 0, 9_000_000, True, False),  # the shard ends, not the range
        (2_010_000, 0, 9_000_000, True, True),
    ],
)
def test_the_range_ends_where_no_record_of_the_range_can_follow(
    last: int | None, behind: int | None, service_ms: int, at_end: bool, beyond: bool
) -> None:
    records = [] if last is None else [record(last)]
    page = Page(records, None if at_end else "next", behind)
    assert is_beyond(Fetched(page, 0, service_ms), RANGE) is beyond


def test_records_of_the_range_are_delivered() -> None:
    times = [999_999, 1_000_000, None, 1_999_999, 2_000_000, 1_500_000]
    found = [one.approximate_arrival_timestamp for one in within(list(map(record, times)), RANGE)]
    assert found == [1000.0, None, 1999.999, 1500.0]


def lease(shard: str, *parents: str, at: str = "1") -> Lease:
    return Lease(shard, shard, ExtendedSequenceNumber(at), parent_ids=parents)


@pytest.mark.parametrize(
    ("leases", "done", "read"),
    [
        ([], "", True),
        ([lease("a"), lease("b")], "a", False),
        ([lease("a"), lease("b")], "ab", True),
        ([lease("a", at=SHARD_END), lease("b", "a")], "", False),
        ([lease("a", at=SHARD_END), lease("b", "a")], "b", True),
        # A merge behind the range, whose child waits for a parent that is not read to its end.
        ([lease("a", at=SHARD_END), lease("b"), lease("c", "a", "b"), lease("d", "c")], "b", True),
        ([lease("a"), lease("b"), lease("c", "a")], "b", False),
    ],
)
def test_everything_is_read_once_each_shard_or_an_ancestor_has_no_more(
    leases: list[Lease], done: str, read: bool
) -> None:
    assert is_read(leases, set(done)) is read


def test_a_replay_takes_a_small_share_and_leaves_no_trace() -> None:
    live = Application(
        "live",
        "flights",
        lambda batch: None,
        region="eu-west-1",
        worker_id="own",
        options=WorkerOptions(
            retrieval="efo",
            skip_older_than=5,
            metrics=(Tallied(),),
            http=":9400",
            idle_time=0.3,
            checkpoint_seconds=7,
            table=LeaseTableOptions(deletion_protection=True, tags=(("team", "a"),)),
        ),
    )
    made = settings_of(live, RANGE, None, "live-replay-x")
    assert (made.name, made.table_name, made.worker_id) == ("live", "live-replay-x", None)
    assert made.initial_position == datetime.fromtimestamp(1000, timezone.utc)
    options = made.options
    assert (options.retrieval, options.skip_older_than, options.idle_time) == ("polling", None, 1)
    assert (options.shard_calls_per_second, options.shard_bytes_per_second) == (1, 1_000_000)
    assert (options.metrics, options.http, options.checkpoint_seconds) == ((), None, 7)
    assert options.table == LeaseTableOptions(tags=(("team", "a"),))
    slow = replace(live, options=WorkerOptions(shard_calls_per_second=0.5, idle_time=2.0))
    assert settings_of(slow, RANGE, None, "slow").options.shard_calls_per_second == 0.5


def test_the_name_of_its_table_tells_what_it_is() -> None:
    names = {table_name("live", NOW, random.Random(seed)) for seed in range(5)}
    assert len(names) == 5
    assert all(name.startswith("live-replay-20261126T083000-") for name in names)
    check_table_name("table_name", table_name("x" * 255, NOW, random.Random(1)))
