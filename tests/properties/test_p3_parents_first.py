"""P3: per partition key, a parent's rows are in an earlier batch than its children's, or task."""

from __future__ import annotations

import pytest

from tests.engine import MODES
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put_at, split

pytestmark = pytest.mark.parametrize("mode", MODES)


def test_p3_a_merged_child_waits_for_a_parent_that_came_after_the_last_listing(
    world: World,
) -> None:
    """One side of the merge is read, and tells of the child; the other is a backlog and a split
    behind."""
    low, high = 2**126, 2**127 - 1
    for data in (b"1", b"2", b"3"):
        put_at(world.kinesis, "s", data, high)
    running = world.query(maxRecordsPerTrigger="1")
    read = running.batch().datas
    split(world.kinesis, "s", index=0)
    put_at(world.kinesis, "s", b"4", high)
    merge_neighbours(world.kinesis, "s", index=1)
    put_at(world.kinesis, "s", b"5", high)
    put_at(world.kinesis, "s", b"other", low - 1)
    read += running.rest()
    assert [data for data in read if data != b"other"] == [b"1", b"2", b"3", b"4", b"5"]
    assert b"other" in read
