"""Which shards of a fleet nobody reads: by the driver's own knowledge, and by the lease table's."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.status import (
    FleetStatus,
    FleetStream,
    ShardState,
    ShardStatus,
    StreamStatus,
    UnreadShard,
)
from sparkinesis.worker.supervision.control_messages import Report
from sparkinesis.worker.supervision.gathered_reports import GatheredReports
from sparkinesis.worker.supervision.roster import Roster, Rules
from sparkinesis.worker.supervision.supervisor_state import _lost, _readable, _unreadable
from sparkinesis.worker.supervision.unread import LastRead, StreamWatch, last_reads, unread_shards
from tests.unit.fleet.idle_spark import hello


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


SHARD = "shardId-000000000000"
WEB, MOBILE, OLD_WEB = "1:web:1700", "1:mobile:1800", "1:web:1600"
DENIED = "AccessDeniedError: no"


def fine(name: str, identifier: str) -> StreamStatus:
    return StreamStatus(name, identifier)


def failing(
    name: str, seconds: float | None = 3.0, identifier: str | None = None, why: str = DENIED
) -> StreamStatus:
    return StreamStatus(name, identifier, why, seconds)


def shard(stream: str, records: int, lag: int | None, shard_id: str = SHARD) -> ShardStatus:
    name = stream.split(":")[1]
    lease = f"{stream}:{shard_id}"
    return ShardStatus(
        shard_id, ShardState.PROCESSING, lag, 0.5, records=records, stream=name, lease=lease
    )


def watch(*reports: tuple[str, float, tuple[StreamStatus, ...] | None]) -> StreamWatch:
    found = StreamWatch()
    for worker, now, streams in reports:
        found = found.add_report(worker, streams, now)
    return found


def status(reports: GatheredReports, now: float, *workers: str) -> FleetStatus:
    roster = Roster(Rules(2.0, 10.0, 1.0, 60.0)).scaled(len(workers))
    for slot, worker in enumerate(workers):
        roster = roster.joined(hello(worker, slot), now)
    return reports.status("app", "several streams", roster, now)


def with_reports(*reports: tuple[str, float, Report]) -> GatheredReports:
    found: GatheredReports = GatheredReports()
    for worker, now, report in reports:
        if worker not in found.workers:
            found = found.add_hello(hello(worker), 0.0)
        found, _ = found.add_report(worker, report, now)
    return found


def test_shards_of_one_id_are_counted_for_their_own_streams() -> None:
    def report(web: int, mobile: int) -> Report:
        shards = (shard(WEB, web, 300), shard(MOBILE, mobile, 9_000))
        streams = (fine("web", WEB), fine("mobile", MOBILE))
        return Report(shards, web + mobile, True, streams=streams)

    reports = with_reports(("a", 10.0, report(0, 0)), ("a", 20.0, report(100, 10)))
    found = status(reports, 20.0, "a")
    assert [(s.stream, s.shard_id, s.lease) for s in found.shards] == [
        ("mobile", SHARD, f"{MOBILE}:{SHARD}"),
        ("web", SHARD, f"{WEB}:{SHARD}"),
    ]
    assert [s.records_per_second for s in found.shards] == [0.5, 5.0], "half of each rate"
    assert found.streams == (
        FleetStream("web", WEB, 1, 0, 5.0, 300),
        FleetStream("mobile", MOBILE, 1, 0, 0.5, 9_000),
    )
    assert found.stream == "web, mobile"
    assert found.millis_behind_latest == 9_000


def test_an_unread_shard_names_its_stream_and_counts_for_it() -> None:
    read = Report(
        (shard(WEB, 5, 0), shard(WEB, 5, 0, "shardId-000000000001")),
        10,
        True,
        unread={f"{MOBILE}:{SHARD}": 4.0},
        streams=(fine("web", WEB), fine("mobile", MOBILE)),
    )
    found = status(with_reports(("a", 1.0, read)), 2.0, "a")
    unread = UnreadShard(SHARD, None, 5_000, "mobile", f"{MOBILE}:{SHARD}")
    assert found.unread == (unread,)
    assert [(s.shards, s.unread, s.millis_behind_latest) for s in found.streams] == [
        (2, 0, 0),
        (0, 1, 5_000),
    ]


def test_a_dead_workers_shard_of_one_stream_is_not_read_by_a_shard_of_another() -> None:
    reports = with_reports(
        ("a", 1.0, Report((shard(WEB, 5, 0),), 5, True)),
        ("b", 9.0, Report((shard(MOBILE, 5, 0),), 5, True, unread={})),
    )
    found = status(reports, 9.0, "b")
    assert found.unread == (UnreadShard(SHARD, "a", 8_000, "web", f"{WEB}:{SHARD}"),)


def test_the_only_stream_has_no_totals_and_its_shards_have_its_name() -> None:
    one = ShardStatus(SHARD, ShardState.PROCESSING, 5, None, stream="flights", lease=SHARD)
    report = Report((one,), 1, True, unread={"shardId-000000000001": 1.0})
    reports = with_reports(("a", 1.0, report))
    roster = Roster(Rules(2.0, 10.0, 1.0, 60.0)).scaled(1).joined(hello("a"), 1.0)
    found = reports.status("app", "flights", roster, 1.0)
    assert found.streams == ()
    assert found.stream == "flights"
    assert [(s.stream, s.lease) for s in found.shards] == [("flights", SHARD)]
    (unread,) = found.unread
    assert (unread.stream, unread.lease) == ("flights", "shardId-000000000001")


def test_who_has_failed_for_longest_gives_the_reason() -> None:
    found = watch(
        ("a", 10.0, (failing("web", 3.0, why="younger"),)),
        ("b", 12.0, (failing("web", 9.0, why="older"),)),
        ("c", 12.0, (fine("web", WEB),)),
    )
    (web,) = found.streams((), (), 20.0)
    assert (web.problem, web.failing_for, web.failing_on) == ("older", 17.0, ("b", "a"))
    assert web.identifier == WEB, "one worker has found the stream"


def test_a_problem_without_a_time_lasts_since_its_report() -> None:
    (web,) = watch(("a", 10.0, (failing("web", None),))).streams((), (), 14.0)
    assert web.failing_for == 4.0


def test_a_worker_that_has_nothing_new_to_say_changes_nothing() -> None:
    before = watch(("a", 10.0, (failing("web"),)))
    assert before.add_report("a", None, 12.0) is before
    assert before.streams((), (), 12.0)[0].failing_for == 5.0, "but time passes"


def test_a_stream_made_anew_counts_with_its_former_leases_under_its_newest_identifier() -> None:
    """One of two workers may not have noticed yet."""
    report = Report((shard(OLD_WEB, 0, 7_000),), 0, True, streams=(fine("web", OLD_WEB),))
    reports = with_reports(
        ("a", 1.0, report),
        ("b", 1.0, Report((shard(WEB, 0, 10),), 0, True, streams=(fine("web", WEB),))),
    )
    (web,) = status(reports, 1.0, "a", "b").streams
    assert (web.identifier, web.shards, web.millis_behind_latest) == (WEB, 2, 7_000)


def test_streams_of_one_name_are_not_taken_for_one() -> None:
    two = (fine("web", "1:web:5"), failing("web", 1.0, "2:web:6"))
    found = watch(("a", 1.0, two), ("b", 1.0, two)).streams((), (), 1.0)
    assert [(one.identifier, one.failing_on) for one in found] == [
        ("1:web:5", ()),
        ("2:web:6", ("a", "b")),
    ]


def test_a_shard_that_two_workers_list_during_its_handover_counts_once() -> None:
    report = Report((shard(WEB, 0, 0),), 0, True, streams=(fine("web", WEB),))
    (web,) = status(with_reports(("a", 1.0, report), ("b", 1.0, report)), 1.0, "a", "b").streams
    assert web.shards == 1


def test_a_failing_stream_is_news_once_and_its_recovery_too() -> None:
    start = watch(("a", 1.0, (fine("web", WEB), fine("app", "1:app:1"))))
    first = start.add_report("a", (failing("web"), fine("app", "1:app:1")), 2.0)
    failed, recovered = first.news(start)
    assert [one.stream for one in failed] == ["web"]
    assert recovered == []
    second = first.add_report("b", (failing("web", why="another reason"),), 3.0)
    assert second.news(first) == ([], []), "on one more worker"
    third = second.add_report("a", (fine("web", WEB), fine("app", "1:app:1")), 4.0)
    assert third.news(second) == ([], []), "b still cannot"
    last = third.add_report("b", (fine("web", WEB),), 5.0)
    failed, recovered = last.news(third)
    assert failed == []
    assert [one.stream for one in recovered] == ["web"]
    again = last.add_report("b", (failing("web"),), 6.0)
    assert [one.stream for one in again.news(last)[0]] == ["web"]


def test_a_worker_that_takes_the_place_of_another_tells_no_news() -> None:
    before = watch(("a", 1.0, (failing("web"),)))
    gone = before.forget(["a"])
    assert gone.streams((), (), 2.0) == ()
    after = gone.add_report("b", (failing("web"),), 3.0)
    assert after.news(before) == ([], [])
    assert after.streams((), (), 3.0)[0].failing_on == ("b",)
    assert gone.forget(["a"]) is gone


def test_a_failing_stream_that_leaves_the_application_is_no_recovery() -> None:
    before = watch(("a", 1.0, (failing("web"), fine("app", "1:app:1"))))
    after = before.add_report("a", (fine("app", "1:app:1"),), 2.0)
    assert after.news(before) == ([], [])
    assert [one.stream for one in after.streams((), (), 2.0)] == ["app"]


def test_the_notes_name_the_streams_and_the_reason() -> None:
    names = [f"s{n}" for n in range(7)]
    many = watch(("a", 1.0, tuple(failing(name) for name in names)))
    assert _unreadable("w", list(many.known.values())) == (
        "Worker w cannot read 7 streams now, and tries again; the other streams are not affected: "
        "s0, s1, s2, s3, s4 and 2 more. The reason for the first: AccessDeniedError: no"
    )
    assert _readable(list(many.known.values())[:2]) == "All workers can read streams s0, s1 now"


def test_the_note_of_a_lost_worker_names_stream_and_shard() -> None:
    reports = with_reports(("a", 1.0, Report((shard(WEB, 0, 0),), 0, True)))
    assert f"listed {SHARD} of web: other workers" in _lost(reports.workers["a"], 2.0)


def test_the_streams_of_a_worker_that_has_left_are_forgotten() -> None:
    report = Report((), 0, True, streams=(failing("web"),))
    reports = with_reports(("a", 1.0, report), ("b", 1.0, report)).retain(["b"])
    (web,) = status(reports, 2.0, "b").streams
    assert web.failing_on == ("b",)
    assert status(reports.retain([]), 2.0).streams == ()
