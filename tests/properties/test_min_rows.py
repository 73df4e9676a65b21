"""``minRowsPerTrigger``: a batch waits for rows, but not for ever, and never under availableNow."""

from __future__ import annotations

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.source.options.checked_options import stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import Query
from tests.planners import Time, timed
from tests.properties.conftest import World
from tests.streams import put, split


def arrive(world: World, datas: list[bytes]) -> None:
    put(world.kinesis, "s", datas)
    world.clock.advance(1000)


MANY = [b"%d" % n for n in range(60)]


def begun(world: World, time: Time | None = None, /, **options: str) -> Query:
    """A query that waits for 100 rows, after its first batch, which does not wait."""
    running = timed(world.query(minRowsPerTrigger="100", **options), time or Time())
    arrive(world, [b"first"])
    assert running.batch().datas == [b"first"]
    return running


def test_the_first_batch_does_not_wait_after_latest_was_resolved(world: World) -> None:
    running = timed(world.query(minRowsPerTrigger="100", initialPosition="latest"), Time())
    assert running.batch().rows == []
    arrive(world, [b"first"])
    assert len(running.batch().rows) == 1


@pytest.mark.parametrize(
    "limit", [{}, {"maxRecordsPerTrigger": "500"}, {"maxBytesPerTrigger": "1m"}]
)
def test_a_batch_waits_for_its_rows(world: World, limit: dict[str, str]) -> None:
    running = begun(world, None, **limit)
    arrive(world, MANY)
    assert running.next_batch() is None
    arrive(world, MANY)
    assert len(running.batch().rows) == 120


def test_user_records_count_as_rows(world: World) -> None:
    running = begun(world)
    (blob,) = aggregate((f"{n}", None, b"x") for n in range(120))
    world.kinesis.put_record(StreamName="s", Data=blob.data, PartitionKey=blob.partition_key)
    world.clock.advance(1000)
    assert len(running.batch().rows) == 120


def test_a_batch_waits_for_the_delay_at_most(world: World) -> None:
    time = Time()
    running = begun(world, time, maxTriggerDelay="1 minute")
    arrive(world, [b"few"])
    time.now = 58.0
    assert running.next_batch() is None
    time.now = 62.0
    assert running.next_batch() is not None
    arrive(world, [b"few again"])
    assert running.next_batch() is None, "the delay begins anew"


def test_rows_that_a_reshard_leaves_to_the_next_batch_are_not_waited_for(world: World) -> None:
    running = begun(world)
    arrive(world, MANY)
    split(world.kinesis, "s")
    arrive(world, MANY)
    assert running.next_batch() is not None


def test_available_now_does_not_wait(world: World) -> None:
    running = timed(world.query(minRowsPerTrigger="100", maxRecordsPerTrigger="100"), Time())
    arrive(world, [b"%d" % n for n in range(250)])
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
