"""Which shards of a fleet nobody reads: by the driver's own knowledge, and by the lease table's."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.status import ShardState, ShardStatus, UnreadShard
from sparkinesis.worker.supervision.gathering.unread import LastRead, last_reads, unread_shards
from sparkinesis.worker.supervision.messages import Report


def report(*shards: str, unread: dict[str, float] | None = None, lag: int | None = 0) -> Report:
    listed = tuple(ShardStatus(each, ShardState.PROCESSING, lag, None) for each in shards)
    return Report(listed, 0, True, unread=unread)


@dataclass
class Watch:
    """What the driver keeps of the reports."""

    settled_after: float = 15.0
    last_read: dict[str, LastRead] = field(default_factory=dict)
    reports: dict[str, tuple[float, Report]] = field(default_factory=dict)

    def add(self, worker: str, said: Report, at: float) -> Watch:
        read = last_reads(self.last_read, worker, said, at, self.settled_after)
        return Watch(self.settled_after, read, {**self.reports, worker: (at, said)})

    def shards(self, *live: str, at: float) -> tuple[UnreadShard, ...]:
        heard = {worker: self.reports[worker] for worker in live}
        looks = {worker: (since, said.unread or {}) for worker, (since, said) in heard.items()}
        return unread_shards(looks, self.last_read, at)

    def seen(self, *live: str, at: float) -> dict[str, int]:
        return {each.shard_id: each.millis_behind_latest for each in self.shards(*live, at=at)}


def test_what_a_live_worker_lists_is_read_whatever_another_has_seen_in_the_table() -> None:
    """Its renewals may fail, or the other's scan be old."""
    watch = Watch().add("a", report("s"), 1.0)
    watch = watch.add("b", report(unread={"s": 9.0}), 2.0)
    assert watch.seen("a", "b", at=3.0) == {}
    assert watch.seen("b", at=3.0) == {"s": 10_000}


def test_a_shard_that_no_worker_of_the_fleet_has_read_ages_by_the_table() -> None:
    watch = Watch().add("a", report(unread={"s": 4.0}), 1.0)
    watch = watch.add("b", report(unread={"s": 2.0}), 2.5)
    assert watch.shards("a", "b", at=3.0) == (UnreadShard("s", None, 6_000, lease="s"),)
    assert watch.shards(at=3.0) == (), "only the live ones' looks count"
    watch = watch.add("a", report(unread={}), 3.0).add("b", report(unread={}), 3.0)
    assert watch.seen("a", "b", at=3.0) == {}


def test_a_released_shard_is_the_tables_business() -> None:
    """It is finished, or handed over; its children's worker knows no more of it."""
    watch = Watch().add("a", report("s", "t"), 1.0).add("a", report("t"), 2.0)
    assert watch.seen("a", at=2.0) == {}
    assert watch.seen(at=5.0) == {"t": 3_000}


def test_a_shard_that_was_handed_over_is_of_its_last_reader() -> None:
    watch = Watch().add("a", report("s"), 1.0).add("b", report("s"), 2.0)
    watch = watch.add("a", report(), 3.0)
    assert watch.shards("a", at=4.0) == (UnreadShard("s", "b", 2_000, lease="s"),)
    watch = watch.add("b", report(), 5.0)
    assert watch.seen("a", at=900.0) == {}, "what a said of it earlier is forgotten"


def test_a_dead_workers_shard_is_settled_once_the_table_must_show_it() -> None:
    """It is finished, or a worker outside of the fleet reads it."""
    watch = Watch(settled_after=15.0).add("a", report("s", "t", lag=None), 0.0)
    watch = watch.add("b", report(unread={}), 15.0)
    assert watch.seen("b", at=15.0) == {"s": 15_000, "t": 15_000}
    unknowing = watch.add("b", report(unread=None), 15.1)
    assert unknowing.seen("b", at=15.1) == {"s": 15_100, "t": 15_100}, "it cannot see the table"
    watch = watch.add("b", report(unread={"s": 12.0}), 15.1)
    assert watch.seen("b", at=15.1) == {"s": 15_100}
    assert watch.seen(at=100.0) == {"s": 100_000}, "nobody is left to see it"
