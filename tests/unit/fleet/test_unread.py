"""Which shards of a fleet nobody reads: by the driver's own knowledge, and by the lease table's."""

from __future__ import annotations

from sparkinesis.fleet.channel.messages import Report
from sparkinesis.fleet.unread import MOST, ShardWatch, longest
from sparkinesis.status import ShardState, ShardStatus, UnreadShard


def report(*shards: str, unread: dict[str, float] | None = None, lag: int | None = 0) -> Report:
    listed = tuple(ShardStatus(each, ShardState.PROCESSING, lag, None) for each in shards)
    return Report(listed, 0, True, unread=unread)


def seen(watch: ShardWatch, *live: str, at: float) -> dict[str, int]:
    return {each.shard_id: each.millis_behind_latest for each in watch.shards(live, at)}


def test_what_a_live_worker_lists_is_read_whatever_another_has_seen_in_the_table() -> None:
    """Its renewals may fail, or the other's scan be old."""
    watch = ShardWatch().add_report("a", report("s"), 1.0)
    watch = watch.add_report("b", report(unread={"s": 9.0}), 2.0)
    assert seen(watch, "a", "b", at=3.0) == {}
    assert seen(watch, "b", at=3.0) == {"s": 10_000}


def test_a_shard_that_no_worker_of_the_fleet_has_read_ages_by_the_table() -> None:
    watch = ShardWatch().add_report("a", report(unread={"s": 4.0}), 1.0)
    watch = watch.add_report("b", report(unread={"s": 2.0}), 2.5)
    assert watch.shards({"a", "b"}, 3.0) == (UnreadShard("s", None, 6_000, lease="s"),)
    assert watch.shards(set(), 3.0) == (), "only the live ones' looks count"
    watch = watch.add_report("a", report(unread={}), 3.0).add_report("b", report(unread={}), 3.0)
    assert seen(watch, "a", "b", at=3.0) == {}


def test_a_released_shard_is_the_tables_business() -> None:
    """It is finished, or handed over; its children's worker knows no more of it."""
    watch = ShardWatch().add_report("a", report("s", "t"), 1.0).add_report("a", report("t"), 2.0)
    assert seen(watch, "a", at=2.0) == {}
    assert seen(watch, at=5.0) == {"t": 3_000}


def test_a_shard_that_was_handed_over_is_of_its_last_reader() -> None:
    watch = ShardWatch().add_report("a", report("s"), 1.0).add_report("b", report("s"), 2.0)
    watch = watch.add_report("a", report(), 3.0)
    assert watch.shards({"a"}, 4.0) == (UnreadShard("s", "b", 2_000, lease="s"),)
    watch = watch.add_report("b", report(), 5.0)
    assert seen(watch, "a", at=900.0) == {}, "what a said of it earlier is forgotten"


def test_a_dead_workers_shard_is_settled_once_the_table_must_show_it() -> None:
    """It is finished, or a worker outside of the fleet reads it."""
    watch = ShardWatch(settled_after=15.0).add_report("a", report("s", "t", lag=None), 0.0)
    watch = watch.add_report("b", report(unread={}), 15.0)
    assert seen(watch, "b", at=15.0) == {"s": 15_000, "t": 15_000}
    unknowing = watch.add_report("b", report(unread=None), 15.1)
    assert seen(unknowing, "b", at=15.1) == {"s": 15_100, "t": 15_100}, "it cannot see the table"
    watch = watch.add_report("b", report(unread={"s": 12.0}), 15.1)
    assert seen(watch, "b", at=15.1) == {"s": 15_100}
    assert seen(watch, at=100.0) == {"s": 100_000}, "nobody is left to see it"


def test_the_looks_of_departed_workers_are_forgotten() -> None:
    watch = ShardWatch().add_report("a", report("t", unread={"s": 4.0}), 1.0).forget(["a"])
    assert dict(watch.unread) == {}
    assert seen(watch, at=2.0) == {"t": 1_000}


def test_a_report_lists_the_shards_that_wait_longest() -> None:
    assert longest(None) is None
    found = longest({f"s{n}": float(n) for n in range(3 * MOST)})
    assert found is not None
    assert len(found) == MOST
    assert min(found.values()) == 2 * MOST
