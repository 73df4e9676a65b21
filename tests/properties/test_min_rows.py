"""``minRowsPerTrigger``: a batch waits for rows, but not for ever, and never under availableNow."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.local import ManualClock
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.options.read_options import stream_read_options
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import Query
from tests.planners import Time, timed
from tests.properties.conftest import World
from tests.streams import put, split


def begun(kinesis: Any, clock: ManualClock, running: Query) -> Query:
    """After its first batch, which does not wait."""
    put(kinesis, "s", [b"first"])
    clock.advance(1000)
    batch = running.batch()
    assert len(batch.rows) == 1
    return running


def test_the_first_batch_does_not_wait_after_latest_was_resolved(world: World) -> None:
    running = timed(world.query(minRowsPerTrigger="100", initialPosition="latest"), Time())
    resolved = running.batch()
    assert resolved.rows == []
    put(world.kinesis, "s", [b"first"])
    world.clock.advance(1000)
    batch = running.batch()
    assert len(batch.rows) == 1


@pytest.mark.parametrize(
    "limit", [{}, {"maxRecordsPerTrigger": "500"}, {"maxBytesPerTrigger": "1m"}]
)
def test_a_batch_waits_for_its_rows(world: World, limit: dict[str, str]) -> None:
    running = begun(
        world.kinesis, world.clock, timed(world.query(minRowsPerTrigger="100", **limit), Time())
    )
    put(world.kinesis, "s", [b"%d" % n for n in range(60)])
    world.clock.advance(1000)
    assert running.next_batch() is None
    put(world.kinesis, "s", [b"%d" % n for n in range(60)])
    world.clock.advance(1000)
    batch = running.batch()
    assert len(batch.rows) == 120


def test_user_records_count_as_rows(world: World) -> None:
    running = begun(world.kinesis, world.clock, timed(world.query(minRowsPerTrigger="100"), Time()))
    (blob,) = aggregate((f"{n}", None, b"x") for n in range(120))
    world.kinesis.put_record(StreamName="s", Data=blob.data, PartitionKey=blob.partition_key)
    world.clock.advance(1000)
    batch = running.batch()
    assert len(batch.rows) == 120


def test_a_batch_waits_for_the_delay_at_most(world: World) -> None:
    time = Time()
    options = {"minRowsPerTrigger": "100", "maxTriggerDelay": "1 minute"}
    running = begun(world.kinesis, world.clock, timed(world.query(**options), time))
    put(world.kinesis, "s", [b"few"])
    world.clock.advance(1000)
    time.now = 58.0
    assert running.next_batch() is None
    time.now = 62.0
    assert running.next_batch() is not None
    put(world.kinesis, "s", [b"few again"])
    world.clock.advance(1000)
    assert running.next_batch() is None, "the delay begins anew"


def test_rows_that_a_reshard_leaves_to_the_next_batch_are_not_waited_for(world: World) -> None:
    running = begun(world.kinesis, world.clock, timed(world.query(minRowsPerTrigger="100"), Time()))
    put(world.kinesis, "s", [b"%d" % n for n in range(60)])
    world.clock.advance(1000)
    split(world.kinesis, "s")
    put(world.kinesis, "s", [b"%d" % n for n in range(60)])
    world.clock.advance(1000)
    assert running.next_batch() is not None


def test_available_now_does_not_wait(world: World) -> None:
    running = timed(world.query(minRowsPerTrigger="100", maxRecordsPerTrigger="100"), Time())
    put(world.kinesis, "s", [b"%d" % n for n in range(250)])
    world.clock.advance(1000)
    running.reader.prepareForTriggerAvailableNow()
    assert sum(len(batch.rows) for batch in running.drain()) == 250


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"minRowsPerTrigger": "9", "maxRecordsPerTrigger": "5"}, "is more than"),
        ({"maxTriggerDelay": "1m"}, "no effect without the option minRowsPerTrigger"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        stream_read_options(Options({"streamName": "s", "region": "us-east-1", **given}))
