"""Which part of each shard a batch read reads, by its start and end, and by filters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.batch_planner import ShardRead, open_ended, plan_shard_reads, unlisted
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.options.checked_options import PushedFilters
from sparkinesis.source.planning.batch_end import Finding
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.shard import Lineage, Shard
from tests.planners import plan, probed
from tests.unit.source.planning.test_batch_end import histories, probe_of

NOW = 1_000_000
ALL: Positions = {ANY_SHARD: TRIM_HORIZON}
PRESENT: Positions = {ANY_SHARD: LATEST}
SPLIT = Lineage.of([Shard("p", (), False), Shard("c1", ("p",)), Shard("c2", ("p",)), Shard("x")])


def read(start: Positions, end: Positions, filters: PushedFilters | None = None) -> list[ShardRead]:
    return plan_shard_reads(SPLIT, start, end, filters or PushedFilters(), NOW)


def test_every_generation_is_read_and_only_open_shards_lack_an_end() -> None:
    planned = read(ALL, PRESENT)
    assert planned == [
        ShardRead("c1", TRIM_HORIZON, LATEST, is_initial=True),
        ShardRead("c2", TRIM_HORIZON, LATEST, is_initial=True),
        ShardRead("p", TRIM_HORIZON, SHARD_END, is_initial=True),
        ShardRead("x", TRIM_HORIZON, LATEST, is_initial=True),
    ]
    assert open_ended(planned) == {(None, True): [planned[0], planned[1], planned[3]]}


def test_a_start_says_of_its_ancestors_that_they_are_done() -> None:
    planned = read({"c1": AfterRecord("7")}, PRESENT)
    assert {s.shard_id: (s.start, s.is_initial) for s in planned} == {
        "c1": (AfterRecord("7"), False),
        "c2": (TRIM_HORIZON, True),
        "x": (TRIM_HORIZON, True),
    }
    # What a child's start says of its parent, a start for all others overrules.
    assert "p" in {s.shard_id for s in read({"c1": AfterRecord("7"), **ALL}, PRESENT)}


def test_an_end_says_of_descendants_that_they_have_not_begun() -> None:
    planned = read(ALL, {"p": AfterRecord("7")})
    assert {s.shard_id: s.end for s in planned} == {"p": AfterRecord("7"), "x": LATEST}
    planned = read(ALL, {"c1": AfterRecord("7")})
    assert {s.shard_id: s.end for s in planned} == {
        "p": SHARD_END,
        "c1": AfterRecord("7"),
        "c2": LATEST,
        "x": LATEST,
    }
    assert len(read(ALL, {"p": LATEST})) == 4


def test_a_shard_without_anything_between_is_left_out() -> None:
    assert read(PRESENT, PRESENT) == []
    assert read({ANY_SHARD: SHARD_END}, PRESENT) == []
    assert read(ALL, {ANY_SHARD: TRIM_HORIZON}) == []
    assert read({ANY_SHARD: AtTimestamp(5)}, {ANY_SHARD: AtTimestamp(5)}) == []
    assert len(read({ANY_SHARD: AtTimestamp(5)}, {ANY_SHARD: AtTimestamp(6)})) == 4
    assert read({ANY_SHARD: AtTimestamp(NOW + 1)}, PRESENT) == []
    assert len(read({ANY_SHARD: AtTimestamp(NOW)}, PRESENT)) == 4
    only_x: Positions = {"x": AfterRecord("10"), ANY_SHARD: SHARD_END}
    assert read(only_x, {"x": AfterRecord("9")}) == []
    assert read(only_x, {"x": AfterRecord("10", 7)}) == []
    assert len(read(only_x, {"x": AfterRecord("11")})) == 1


def test_instants_of_filters_narrow_those_of_the_options() -> None:
    filters = PushedFilters(shards=frozenset({"p", "x"}), start_ms=50, before_ms=90)
    assert read({ANY_SHARD: AtTimestamp(40)}, {ANY_SHARD: AtTimestamp(80)}, filters) == [
        ShardRead("p", AtTimestamp(50), SHARD_END, 80, is_initial=True),
        ShardRead("x", AtTimestamp(50), LATEST, 80, is_initial=True),
    ]
    start: Positions = {"p": AfterRecord("7"), "x": AtTimestamp(60)}
    assert read(start, {"p": AfterRecord("9")}, filters) == [
        ShardRead("p", AfterRecord("7"), AfterRecord("9"), 90),
        ShardRead("x", AtTimestamp(60), LATEST, 90),
    ]


def test_shards_that_a_map_stands_in_and_that_are_gone_are_named() -> None:
    boundary: Positions = {"z": AfterRecord("7"), "y": TRIM_HORIZON, "done": SHARD_END, **ALL}
    assert unlisted({**boundary, "p": LATEST}, SPLIT) == ("y", "z")


def _streamed(
    lineage: Lineage, held: dict[str, int], batches: int, data: st.DataObject
) -> Positions:
    """The offset of a streaming query after some batches."""

    def probe(shard: str, position: Position) -> Finding:
        done = int(position.sequence_number) if isinstance(position, AfterRecord) else 0
        take = data.draw(st.integers(1, 3))
        return probe_of(lineage.shards[shard], done, held[shard], take)

    at: Positions = {ANY_SHARD: TRIM_HORIZON}
    for _ in range(batches):
        at = plan(at, lineage, probed(at, lineage, probe)).end
    return at


@given(histories(), st.integers(1, 6), st.data())
def test_an_offset_of_a_streaming_query_parts_the_records_in_two(
    history: tuple[Lineage, dict[str, int]], batches: int, data: st.DataObject
) -> None:
    lineage, held = history
    offset = _streamed(lineage, held, batches, data)

    def records(start: Positions, end: Positions) -> list[tuple[str, int]]:
        found = []
        for shard_read in plan_shard_reads(lineage, start, end, PushedFilters(), NOW):
            since, until = shard_read.start, shard_read.end
            first = int(since.sequence_number) if isinstance(since, AfterRecord) else 0
            last = held[shard_read.shard_id]
            if isinstance(until, AfterRecord):
                last = int(until.sequence_number)
            elif isinstance(shard_read.before_ms, int):
                last = 0
            found += [(shard_read.shard_id, number) for number in range(first, last)]
        return found

    everything = [(shard, number) for shard, count in held.items() for number in range(count)]
    before, behind = records(ALL, offset), records(offset, PRESENT)
    assert sorted(before + behind) == sorted(everything)
