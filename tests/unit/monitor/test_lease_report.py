"""An application in `sparkinesis top`: who renews, what is late, and which rates are of now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.lease_report import lag_error_lines, lease_rows, top_object, top_view
from sparkinesis.monitor.watched import QUIET, WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.terminal.view import GroupRow, ShardRow, View, summary_line


def lease(key: str, at: str = "5", **given: object) -> Lease:
    given = {"owner": "v", "counter": 3, "throughput_kbps": 8.0, **given}
    return replace(Lease(key, key, ExtendedSequenceNumber(at)), **given)


ROWS = [
    lease("1"),
    lease("2", checkpoint_owner="dead"),
    lease("3", owner=None),
    lease("4", "SHARD_END", owner="gone"),
    lease("5", owner="dead"),
    lease("6", throughput_kbps=None),
]


def watched(seconds: float) -> WatchedTable:
    """Of all owners, only v renews, and only its first lease."""
    first, *others = ROWS
    return (
        WatchedTable()
        .after_scan(ROWS, 10.0)
        .after_scan([replace(first, counter=4), *others], 10.0 + seconds)
    )


def see(
    table: WatchedTable, lags: Mapping[str, Lag] = {}, quiet: float = QUIET
) -> ApplicationSnapshot:
    return ApplicationSnapshot.of(table, lags, quiet=quiet)


def shown(table: WatchedTable, lags: Mapping[str, Lag] = {}, quiet: float = QUIET) -> View:
    return top_view("t", "s", see(table, lags, quiet), ["first"])


def objects(
    table: WatchedTable, lags: Mapping[str, Lag] = {}, quiet: float = QUIET
) -> dict[str, Any]:
    return top_object("app", "flights", see(table, lags, quiet))


LAGS = {"1": Lag(20), "2": Lag(30_000), "3": Lag(why="expired"), "4": Lag(), "6": Lag(why="Slow.")}


def test_an_owner_whose_counters_stand_still_shows() -> None:
    view = shown(watched(7.2), LAGS)
    assert view.owners == (
        GroupRow("dead", 2, 30_000, None, "not renewed for 7 s", is_amiss=True),
        GroupRow("v", 2, 20, 8.0),
    )
    assert view.shards == (
        ShardRow("1", "v", "held", 20, 8.0, "at 5:0"),
        ShardRow("2", "dead", "handed over", 30_000, None, "to v, unread for 7 s, at 5:0"),
        ShardRow(
            "3", None, "unowned", None, None, "unread for 7 s, expired, at 5:0", is_amiss=True
        ),
        ShardRow("4", "gone", "finished", None, None, "at SHARD_END"),
        ShardRow("5", "dead", "held", None, None, "unread for 7 s, at 5:0"),
        ShardRow(
            "6",
            "v",
            "held",
            None,
            None,
            "unread for 7 s, lag unknown, at 5:0",
            is_amiss=True,
        ),
    )
    assert view.messages == ("first", "Slow.")
    assert view.rate_unit == "KB/s"


def test_the_view_the_object_and_the_rows_count_the_rates_of_live_owners_alone() -> None:
    for seconds, dead, rate in ((6.9, 16.0, "8.0"), (7.2, None, "-")):
        view, found = shown(watched(seconds)), objects(watched(seconds))
        assert [row.rate for row in view.owners] == [dead, 8.0]
        assert [row["kilobytes_per_second"] for row in found["owners"]] == [dead, 8.0]
        rates = [row.rate for row in view.shards]
        assert [row["kilobytes_per_second"] for row in found["shards"]] == rates
        rows = {row["shard"]: row["KB/s"] for row in lease_rows(see(watched(seconds)))}
        assert rows == {"1": "8.0", "2": rate, "3": "-", "4": "-", "5": rate, "6": "-"}


def test_a_shard_that_nobody_reads_is_as_far_behind_as_it_is_unread() -> None:
    """The lag was measured at the checkpoint, when no record followed it."""
    lags = {"2": Lag(0), "3": Lag(9_000), "4": Lag(), "5": Lag(300)}
    view = shown(watched(7.2), lags)
    behind = {row.shard: row.millis_behind for row in view.shards}
    assert behind == {"1": None, "2": 7_200, "3": 9_000, "4": None, "5": 7_200, "6": None}
    assert view.millis_behind == 9_000
    assert {owner.name: owner.millis_behind for owner in view.owners} == {"dead": 7_200, "v": None}
    found = objects(watched(7.2), lags)
    assert [one["millis_behind_latest"] for one in found["shards"]] == list(behind.values())
    assert [one["millis_behind_latest"] for one in found["owners"]] == [7_200, None]
    rows = {row["shard"]: row["behind"] for row in lease_rows(see(watched(7.2), lags))}
    assert rows == {"1": "-", "2": "7.2 s", "3": "9.0 s", "4": "-", "5": "7.2 s", "6": "-"}


def test_an_owner_that_may_still_renew_does_not_count_as_dead() -> None:
    lags = {"2": Lag(0), "3": Lag(0)}
    for before in (
        shown(watched(6.9), lags),
        shown(watched(8.0), lags, quiet=9.0),
    ):
        assert [row.millis_behind for row in before.shards if row.shard == "2"] == [0]
        assert [row.millis_behind for row in before.shards if row.shard == "3"] != [0]
    found = objects(watched(8.0), lags, quiet=9.0)
    assert found["shards"][1]["unread_for_seconds"] is None
    assert found["shards"][2]["unread_for_seconds"] == 8.0
    (row,) = (row for row in lease_rows(see(watched(8.0), lags, 9.0)) if row["shard"] == "2")
    assert row["behind"] == "0.0 s"
    first_look = WatchedTable().after_scan(ROWS, 10.0)
    assert [row.millis_behind for row in shown(first_look, lags).shards[1:3]] == [0, 0]


WEB, APP = StreamIdentifier("1", "web", 1), StreamIdentifier("1", "app", 1)


def of_streams() -> WatchedTable:
    """Two streams, of which one is read; both have a shard of the same id."""
    rows = [
        lease("0").in_stream(WEB),
        lease("1").in_stream(WEB),
        lease("0", owner=None).in_stream(APP),
        lease("2", "SHARD_END", owner=None).in_stream(APP),
    ]
    moved = [replace(row, counter=row.counter + bool(row.owner)) for row in rows]
    return WatchedTable().after_scan(rows, 0.0).after_scan(moved, 2.0)


def test_streams_have_totals_and_their_shards_stand_behind_their_names() -> None:
    lags = {"1:web:1:0": Lag(50), "1:web:1:1": Lag(70), "1:app:1:0": Lag(20_000)}
    view = shown(of_streams(), lags)
    assert view.streams == (
        GroupRow("app", 1, 20_000, None, "not read", is_amiss=True),
        GroupRow("web", 2, 70, 16.0),
    )
    assert [(row.shard, row.stream) for row in view.shards] == [
        ("1:app:1:0", "app"),
        ("1:app:1:2", "app"),
        ("1:web:1:0", "web"),
        ("1:web:1:1", "web"),
    ]
    assert any(line.startswith("No live worker reads app") for line in view.messages)
    newer = of_streams().leases[2].in_stream(StreamIdentifier("1", "web", 2))
    anew = WatchedTable().after_scan([*of_streams().leases, newer], 0.0)
    notes = {"app": "not read", "1:web:1": "made anew since", "1:web:2": ""}
    assert {row.name: row.note for row in shown(anew).streams} == notes
    old = ApplicationSnapshot.of(anew, {}, frozenset({WEB}))
    assert old.replaced == {WEB: newer.stream}, "also if the newer one is not to be seen"


def totals(groups: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("shards", "millis_behind_latest", "kilobytes_per_second")
    return [tuple(one[name] for name in names) for one in groups]


def test_streams_as_objects_and_rows() -> None:
    lags = {"1:web:1:0": Lag(50), "1:web:1:1": Lag(70), "1:app:1:0": Lag(20_000)}
    found = objects(of_streams(), lags)
    assert totals(found["streams"]) == [(1, 20_000, None), (2, 70, 16.0)], "as in the view"
    assert (
        found["streams"][0].items()
        >= {
            "stream": "app",
            "identifier": "1:app:1",
            "is_read": False,
            "made_anew_as": None,
        }.items()
    )
    assert found["streams"][1]["is_read"] is True
    first = found["shards"][0]
    assert (first["lease"], first["stream"], first["identifier"], first["shard"]) == (
        "1:app:1:0",
        "app",
        "1:app:1",
        "0",
    )
    assert [
        (row["stream"], row["shard"], row["behind"]) for row in lease_rows(see(of_streams(), lags))
    ] == [
        ("app", "0", "20.0 s"),
        ("app", "2", "-"),
        ("web", "0", "0.1 s"),
        ("web", "1", "0.1 s"),
    ]
    assert "stream" not in lease_rows(see(watched(0.0), {}))[0], "the only stream is not named"


def test_hash_keys_are_those_of_a_stream_that_was_not_made_anew() -> None:
    newer, whole = StreamIdentifier("1", "web", 2), (0, 2**128 - 1)
    rows = [
        lease("0", "SHARD_END", hash_range=whole).in_stream(WEB),
        lease("0", hash_range=whole).in_stream(newer),
        lease("0", hash_range=(0, 7)).in_stream(APP),
    ]
    view = shown(WatchedTable().after_scan(rows, 0.0), {})
    holes = [line for line in view.messages if line.startswith("No unfinished lease")]
    assert len(holes) == 1
    assert "of app: " in holes[0]


def test_of_many_reasons_a_few_are_told() -> None:
    lags = {str(n): Lag(why=f"Reason {n}.") for n in range(9)}
    assert lag_error_lines(lags) == [
        *(f"Reason {n}." for n in range(5)),
        "The lags of other shards are unknown for 4 more reasons.",
    ]
    assert lag_error_lines({"1": Lag(why="a"), "2": Lag(why="a"), "3": Lag(why="expired")}) == ["a"]


def test_as_an_object() -> None:
    found = objects(watched(7.2), LAGS)
    assert (found["application"], found["stream"], found["watched_seconds"]) == (
        "app",
        "flights",
        7.2,
    )
    assert totals(found["owners"]) == [(2, 30_000, None), (2, 20, 8.0)], "as in the view"
    assert [(one["owner"], one["still_for_seconds"]) for one in found["owners"]] == [
        ("dead", 7.2),
        ("v", 0.0),
    ]
    assert found["shards"][1] == {
        "lease": "2",
        "stream": None,
        "identifier": None,
        "shard": "2",
        "state": "handed over",
        "owner": "dead",
        "handed_over_to": "v",
        "stopped_by": [],
        "checkpoint": {"sequence_number": "5", "sub_sequence_number": 0},
        "millis_behind_latest": 30_000,
        "lag_unknown_because": None,
        "lost_unread": None,
        "kilobytes_per_second": None,
        "renewed_seconds_ago": None,
        "unread_for_seconds": 7.2,
    }
    assert found["shards"][0]["renewed_seconds_ago"] == 0.0
    assert found["shards"][0]["unread_for_seconds"] is None
    assert found["shards"][2]["lag_unknown_because"] == "expired"


def test_a_shard_that_is_done_but_for_its_children_is_not_amiss_and_has_no_lag() -> None:
    rows = WatchedTable().after_scan([lease("1", hash_range=(0, 2**128 - 1))], 0.0)
    view = shown(rows, {"1": Lag(why="at shard end")})
    (row,) = view.shards
    assert (row.millis_behind, row.note, row.is_amiss) == (None, "at shard end, at 5:0", False)
    assert "lag unknown" in summary_line(view)


def test_hash_keys_that_no_lease_is_left_to_read_are_told() -> None:
    """As while the shards that follow a finished one have no leases yet."""
    rows = [
        lease("1", "SHARD_END", hash_range=(0, 99)),
        lease("2", hash_range=(100, 2**128 - 1)),
    ]
    view = shown(WatchedTable().after_scan(rows, 0.0), {"2": Lag(0)})
    _, told = view.messages
    assert told.startswith("No unfinished lease covers the hash keys 0 to 99: their records")
    assert "lag unknown" in summary_line(view)
    late = shown(WatchedTable().after_scan(rows, 0.0), {"2": Lag(30_000)})
    assert "at least ! 30.0 s behind" in summary_line(late)
    found = objects(WatchedTable().after_scan(rows, 0.0), {})
    assert found["unread_hash_keys"] == {"flights": ["0", "99"]}
    whole = [*rows, lease("3", "TRIM_HORIZON", hash_range=(0, 99), owner=None)]
    assert shown(WatchedTable().after_scan(whole, 0.0)).messages == ("first",)


def test_a_lease_without_hash_keys_may_be_the_one_that_seems_to_be_missing() -> None:
    """As KCLs before 1.14 wrote them."""
    rows = WatchedTable().after_scan([lease("1", hash_range=(0, 99)), lease("2")], 0.0)
    assert objects(rows, {})["unread_hash_keys"] == {}
