"""A stream that is taken out of a query: refused, or dropped where no planned row is lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.errors import OffsetError
from tests.engine import MODES, Query
from tests.properties.conftest import World
from tests.streams import arn_of, put


@pytest.fixture
def both(kinesis: Any, query: Callable[..., Query]) -> Query:
    """A query of two streams that has read a record of each, and has more of each to read."""
    kinesis.create_stream(StreamName="t", ShardCount=1)
    put(kinesis, "s", [b"a"])
    put(kinesis, "t", [b"b"])
    running = query(streamName="s,t")
    assert data(running) == [b"a", b"b"]
    put(kinesis, "s", [b"c", b"d"])
    put(kinesis, "t", [b"e", b"f"])
    return running


def data(query: Query) -> list[bytes]:
    return sorted(query.rest())


def test_a_removed_stream_is_refused_by_an_error_that_names_the_option(both: Query) -> None:
    both.restart(streamName="s")
    with pytest.raises(OffsetError) as caught:
        both.plan()
    assert str(caught.value) == (
        "The checkpoint holds stream 't', which the query does not read: it reads 's'. To go on "
        "without 't', set the option removedStreams=drop: its unread records are not delivered. "
        "Otherwise name it in the option streamName (streamARN) again."
    )
    both.restart(streamName="s", removedStreams="Fail")
    with pytest.raises(OffsetError, match="removedStreams=drop"):
        both.plan()


def test_a_query_goes_on_without_a_removed_stream(
    both: Query, caplog: pytest.LogCaptureFixture
) -> None:
    position = both.checkpoint["t"]
    both.restart(streamName="s", removedStreams="drop")
    with caplog.at_level(logging.WARNING):
        assert data(both) == [b"c", b"d"]
    assert list(both.checkpoint) == ["s"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("The query no longer reads stream 't', and the next batch removes it")
    # The positions are those of the option startingPosition: the rest can be read by hand.
    assert json.loads(told.split("not delivered: ")[1]) == {"t": position}


@pytest.mark.parametrize("mode", MODES)
def test_p1_a_planned_batch_is_read_as_planned_after_its_stream_was_removed(both: Query) -> None:
    start, end = both.plan()
    planned = both.read(start, end).rows
    assert sorted(row["data"] for row in planned) == [b"c", b"d", b"e", b"f"]
    # The batch was not committed: Spark gives the new reader its offsets.
    both.restart(streamName="s", removedStreams="drop")
    assert both.read(start, end).rows == planned
    both.checkpoint = end
    assert both.next_batch() is None


@pytest.mark.parametrize("mode", MODES)
def test_p1_a_first_batch_is_read_as_planned_after_its_stream_was_removed(world: World) -> None:
    """Spark does not store where a first batch begins: it asks the new reader."""
    world.kinesis.create_stream(StreamName="t", ShardCount=2)
    put(world.kinesis, "s", [b"%d" % n for n in range(9)])
    put(world.kinesis, "t", [b"%d" % n for n in range(9, 20)])
    running = world.query(streamName="s,t")
    start, end = running.plan()
    planned = running.read(start, end).rows
    assert len(planned) == 20
    running.restart(streamName="s", removedStreams="drop")
    initial = json.loads(json.dumps(running.reader.initialOffset()))
    assert list(initial) == ["s"]
    assert running.read(initial, end).rows == planned
    running.checkpoint = end
    put(world.kinesis, "s", [b"x"])
    put(world.kinesis, "t", [b"y"])
    assert data(running) == [b"x"]


def test_p1_the_batch_that_drops_a_stream_is_the_same_when_the_stream_is_back(both: Query) -> None:
    both.restart(streamName="s", removedStreams="drop")
    start, end = both.plan()
    planned = both.read(start, end).rows
    both.restart(streamName="s,t", removedStreams="fail")
    assert both.read(start, end).rows == planned
    both.checkpoint = end
    # It is a new stream to the query now, which begins at initialPosition.
    assert data(both) == [b"b", b"e", b"f"]


def test_a_stream_may_take_the_place_of_another(kinesis: Any, both: Query) -> None:
    kinesis.create_stream(StreamName="u", ShardCount=1)
    put(kinesis, "u", [b"g"])
    both.restart(streamName="s,u", removedStreams="drop")
    first = both.batch()
    assert sorted(first.end) == ["s", "u"]
    assert data(both) == [b"c", b"d", b"g"]


def test_a_stream_that_is_back_before_it_was_dropped_resumes(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.create_stream(StreamName="t", ShardCount=1)
    put(world.kinesis, "s", [b"a"])
    put(world.kinesis, "t", [b"b"])
    running = world.query(streamName="s,t")
    assert data(running) == [b"a", b"b"]
    running.restart(streamName="s", removedStreams="drop")
    for _ in range(3):
        assert running.next_batch() is None  # no row, so no batch, and nothing is dropped
    assert len([r for r in caplog.records if "no longer reads" in r.getMessage()]) == 1
    put(world.kinesis, "t", [b"c"])
    running.restart(streamName="s,t", removedStreams="fail")
    assert data(running) == [b"c"]


def test_a_checkpoint_of_other_streams_alone_is_never_dropped(both: Query) -> None:
    both.restart(streamName="u", removedStreams="drop")
    with pytest.raises(OffsetError, match=r"belongs to stream 's', 't', but the query reads 'u'\."):
        both.plan()


def test_a_planned_batch_is_read_by_the_arn_of_the_streams_that_are_left(world: World) -> None:
    world.kinesis.create_stream(StreamName="t", ShardCount=1)
    arns = [arn_of(world.kinesis, name) for name in ("s", "t")]
    put(world.kinesis, "s", [b"a"])
    put(world.kinesis, "t", [b"b"])
    # The fixture's default is a name.
    options = {**world.query()._options, "streamARN": ",".join(arns)}
    del options["streamName"]
    running = Query(**options)
    start, end = running.plan()
    planned = running.read(start, end).rows
    assert sorted(row["data"] for row in planned) == [b"a", b"b"]
    running.restart(streamARN=arns[0], removedStreams="drop")
    assert running.read(start, end).rows == planned
