"""What a batch read reads of each shard: nothing twice, nothing left out."""

from __future__ import annotations

from sparkinesis.source.batch.filters import PushedFilters
from sparkinesis.source.batch.shard_reads import ShardRead, open_ended, plan_shard_reads
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
)
from sparkinesis.stream.shard import Lineage, Shard

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
