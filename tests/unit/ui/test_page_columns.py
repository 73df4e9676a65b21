"""What the page shows of a look: tables, the map, the charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.local.model.shard_log import SequenceNumber
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.lease_report import top_view
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard
from sparkinesis.ui import page_columns
from sparkinesis.ui.page_columns import MappedShard, born, shard_map
from sparkinesis.ui.watcher import NOTHING_REPORTED, ChartPoint, PageSnapshot, Reported, with_point

NOW = 1_795_000_600.0
HALF = (MAX_HASH_KEY + 1) // 2


def number(created: float, index: int = 0, counter: int = 7) -> str:
    return str(SequenceNumber(int(created), index, counter, int(created)))


def lease(shard: int, at: str, first: int, last: int, **given: object) -> Lease:
    made = Lease(f"shardId-{shard:012}", f"shardId-{shard:012}", ExtendedSequenceNumber(at))
    return msgspec.structs.replace(made, hash_range=(first, last), **given)


ROWS = [
    lease(0, "SHARD_END", 0, MAX_HASH_KEY, child_ids=("shardId-000000000001",)),
    lease(
        1, number(NOW - 300, 1), 0, HALF - 1, owner="b", throughput_kbps=12.0,
        parent_ids=("shardId-000000000000",),
    ),
    lease(
        2, number(NOW - 300, 2), HALF, MAX_HASH_KEY, owner="a", checkpoint_owner="b",
        throughput_kbps=30.5, parent_ids=("shardId-000000000000",),
    ),
]  # fmt: skip
LISTED = (
    Shard("shardId-000000000000", (), False, (0, MAX_HASH_KEY), number(NOW - 900, 0)),
    Shard("shardId-000000000001", (), True, (0, HALF - 1), number(NOW - 300, 1)),
    Shard("shardId-000000000003", (), True, (0, HALF - 1), number(NOW - 60, 3)),
)
LAGS = {ROWS[0].key: Lag(), ROWS[1].key: Lag(1200), ROWS[2].key: Lag(75_000)}


def look(
    rows: list[Lease] = ROWS, lags: dict[str, Lag] = LAGS, reported: Reported = NOTHING_REPORTED
) -> PageSnapshot:
    table = WatchedTable().after_scan(rows, 10.0)
    points = (ChartPoint(NOW - 2, None, None, None), ChartPoint(NOW, 75_000, 42.5, 100.0))
    view = top_view("app", "", ApplicationSnapshot.of(table, lags))
    return PageSnapshot(1, NOW, view, table, {None: LISTED}, reported, points)


def test_the_table_of_shards() -> None:
    said = Reported(shard_rates={ROWS[1].key: 99.5})
    found = page_columns.shard_columns(look(reported=said))
    assert len({len(column) for column in found.values()}) == 1
    assert found["shard"] == [row.shard_id for row in ROWS]
    assert found["owner"] == ["-", "b", "b"]
    assert found["state"] == ["finished", "held", "handed over"]
    assert found["behind"] == ["-", "1.2 s", "75.0 s"]
    assert found["behind_ms"] == [-1, 1200, 75_000]
    assert found["late"] == ["", "", "very-late"]
    assert found["kbps_text"] == ["-", "12.0", "30.5"]
    assert found["records"] == [-1, 99.5, -1]
    assert found["records_text"] == ["-", "99.5", "-"]
    assert found["checkpoint"] == [str(row.checkpoint) for row in ROWS]
    assert found["parents"] == ["", "0", "0"]
    assert found["children"] == ["1, 2", "", ""], "by its own row, and by its children's"
    assert found["note"] == ["", "", "to a"]
    lost = look([ROWS[1]], {ROWS[1].key: Lag(why="expired")})
    assert page_columns.shard_columns(lost)["late"] == ["amiss"]
    assert page_columns.map_columns(replace(lost, listed={}), None)["by_lag"] == [
        page_columns.VERY_LATE
    ]


def test_the_table_of_workers() -> None:
    """c says that it runs, and owns nothing; b does not say anything."""
    said = Reported({"c": 5.0, "d": None}, worker_notes={"c": "running"})
    rows = [ROWS[0], ROWS[1], msgspec.structs.replace(ROWS[2], checkpoint_owner=None)]
    found = page_columns.worker_columns(look(rows, reported=said))
    assert found["worker"] == ["a", "b", "c", "d"]
    assert found["shards"] == [1, 1, 0, 0]
    assert found["share"] == [50.0, 50.0, 0.0, 0.0]
    assert found["behind"] == ["75.0 s", "1.2 s", "-", "-"]
    assert found["kbps"] == [30.5, 12.0, -1, -1]
    assert found["records_text"] == ["-", "-", "5.0", "-"]
    assert found["note"] == ["", "", "running", ""]
    assert len(set(found["colour"][:2])) == 2


def test_the_map() -> None:
    found = page_columns.map_columns(look(), None)
    assert found["shard"] == [f"shardId-{n:012}" for n in (0, 3, 1, 2)]
    assert [one / 1000 - NOW for one in found["left"]] == [-900, -60, -300, -300]
    assert [one / 1000 - NOW for one in found["right"]] == [-300, 0, 0, 0]
    assert list(zip(found["bottom"], found["top"], strict=True)) == [
        (0, 100),
        (0, 50),
        (0, 50),
        (50, 100),
    ]
    assert found["state"] == ["finished", "no lease", "held", "handed over"]
    assert found["by_owner"][:2] == [page_columns.CLOSED, page_columns.UNREAD], (
        "nobody reads shard 3"
    )
    assert found["by_owner"][2] == found["by_owner"][3] == page_columns.OWNERS[0]
    assert found["by_lag"] == [
        page_columns.NO_LAG,
        page_columns.UNREAD,
        page_columns.FRESH,
        page_columns.VERY_LATE,
    ]
    assert found["is_open"] == ["closed", "open", "open", "open"]
    left, right = page_columns.map_edges(found, NOW)
    assert right == NOW * 1000
    assert NOW - 900 < left / 1000 < NOW - 300, "a while before the first reshard"


def test_a_thin_box_has_no_edge_that_hides_it() -> None:
    thin = [lease(n, "TRIM_HORIZON", n * HALF // 100, (n + 1) * HALF // 100 - 1) for n in range(9)]
    wide = lease(9, "TRIM_HORIZON", HALF, MAX_HASH_KEY)
    found = page_columns.map_columns(replace(look([*thin, wide], {}), listed={}), None)
    assert found["edge"] == [0.0] * 9 + [1.0]
    assert found["number"] == [""] * 9 + ["9"]


def test_a_map_does_not_begin_before_its_shards() -> None:
    """The stream is 70 s old, and was split 60 s ago."""
    begin = NOW - 70
    listed = (
        Shard("shardId-000000000000", (), False, (0, MAX_HASH_KEY), number(begin, 0)),
        Shard("shardId-000000000001", ("shardId-000000000000",), True, (0, 9), number(NOW - 60, 1)),
    )
    found = page_columns.map_columns(replace(look([]), listed={None: listed}), None)
    assert page_columns.map_edges(found, NOW) == (begin * 1000, NOW * 1000)


def test_a_map_without_a_reshard_is_of_the_last_hour() -> None:
    found = page_columns.map_columns(look([ROWS[1]]), StreamIdentifier("1", "other", 1))
    assert found["shard"] == []
    assert page_columns.map_edges(found, NOW) == ((NOW - 3600) * 1000, NOW * 1000)


def test_generations_stand_for_unknown_times() -> None:
    """Another server's sequence numbers tell no time."""
    rows = [
        lease(0, "SHARD_END", 0, MAX_HASH_KEY),
        lease(1, "77", 0, MAX_HASH_KEY, parent_ids=("shardId-000000000000",)),
    ]
    found = page_columns.map_columns(replace(look(rows), listed={}), None)
    (first, second), (end, last) = found["left"], found["right"]
    assert first < end == second < last == NOW * 1000


def test_a_shard_that_nobody_reads_is_red() -> None:
    (colour,) = page_columns.map_columns(
        replace(look([msgspec.structs.replace(ROWS[1], owner=None)]), listed={}), None
    )["by_owner"]
    assert colour == page_columns.UNREAD


def test_the_charts() -> None:
    found = page_columns.chart_columns(look())
    assert found["at"] == [(NOW - 2) * 1000, NOW * 1000]
    for name, last in (("lag", 75.0), ("kbps", 42.5), ("records", 100.0)):
        assert math.isnan(found[name][0]), "a gap, not a zero"
        assert found[name][1] == last


def test_the_charts_are_of_an_hour_and_bounded() -> None:
    def last(*times: float, before: Sequence[float] = ()) -> list[float]:
        points = tuple(ChartPoint(at, 1, None, None) for at in before)
        for at in times:
            points = with_point(points, ChartPoint(at, 1, None, None))
        return [points[0].at, points[-1].at, len(points)]

    assert last(*range(0, 7200, 10)) == [3590, 7190, 361]
    many = [n / 100 for n in range(7200)]
    assert last(72.0, 72.01, before=many) == [0.02, 72.01, 7200]
    assert last(500, 100) == [100, 100, 1], "a clock that was set back begins anew"


BEGAN = 1_795_000_000


def short_lease(shard_id: str, at: str = "TRIM_HORIZON", **given: object) -> Lease:
    return msgspec.structs.replace(Lease(shard_id, shard_id, ExtendedSequenceNumber(at)), **given)


SPLIT = [
    Shard("s-0", (), False, (0, MAX_HASH_KEY), number(BEGAN)),
    Shard("s-1", ("s-0",), True, (0, HALF - 1), number(BEGAN + 60, 1)),
    Shard("s-2", ("s-0",), True, (HALF, MAX_HASH_KEY), number(BEGAN + 60, 2)),
]


def test_a_split() -> None:
    assert shard_map([short_lease("s-0"), short_lease("s-1")], SPLIT) == [
        MappedShard("s-0", "s-0", (), ("s-1", "s-2"), (0, 1), 0, BEGAN, BEGAN + 60, False),
        MappedShard("s-1", "s-1", ("s-0",), (), (0, 0.5), 1, BEGAN + 60, None, True),
        MappedShard("s-2", None, ("s-0",), (), (0.5, 1), 1, BEGAN + 60, None, True),
    ]


def test_a_merge_by_leases_alone() -> None:
    """The stream could not be listed; checkpoints tell when a shard was made."""
    rows = [
        short_lease("s-1", number(BEGAN, 1, 7), hash_range=(0, HALF - 1)),
        short_lease("s-2", "SHARD_END", hash_range=(HALF, MAX_HASH_KEY)),
        short_lease(
            "s-3",
            number(BEGAN + 9, 3),
            parent_ids=("s-1", "s-2"),
            hash_range=(0, MAX_HASH_KEY),
        ),
    ]
    left, right, merged = shard_map(rows, [])
    assert (left.began, left.ended, left.is_open) == (BEGAN, BEGAN + 9, False)
    assert (right.began, right.ended, right.is_open) == (None, BEGAN + 9, False)
    assert (merged.parents, merged.generation, merged.is_open) == (("s-1", "s-2"), 1, True)


def test_a_closed_shard_whose_children_are_not_listed_yet() -> None:
    (one,) = shard_map([short_lease("s-0")], SPLIT[:1])
    assert (one.is_open, one.ended, one.children) == (False, None, ())
    (by_children,) = shard_map([short_lease("s-0", child_ids=("s-1",), hash_range=(0, 9))], [])
    assert (by_children.is_open, by_children.children) == (False, ("s-1",))


def test_a_finished_lease_is_of_a_closed_shard() -> None:
    (one,) = shard_map([short_lease("s-0", "SHARD_END", hash_range=(0, 9))], [])
    assert not one.is_open


def test_a_shard_of_unknown_hash_keys_has_no_place() -> None:
    assert shard_map([short_lease("s-9")], []) == []


def test_grandchildren_come_after_children() -> None:
    chain = [Shard(f"s-{n}", (f"s-{n - 1}",) if n else (), n == 2, (0, 1)) for n in range(3)]
    assert [one.generation for one in shard_map([], reversed(chain))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        # From AWS' documentation of PutRecord and GetRecords.
        ("49590338271490256608559692538361571095921575989136588898", 1_542_776_258),
        (number(BEGAN, 5, 3), BEGAN),
        ("49545115243490985018280067714973144582180062593244200961", None),  # of version 1
        ("7", None),
        ("9" * 300, None),
        ("LATEST", None),
        (number(12), None),
    ],
)
def test_the_second_in_a_sequence_number(text: str, second: int | None) -> None:
    assert born(text) == second
