"""The status of a fleet, computed from its workers' reports."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from sparkinesis.status import (
    Failure,
    FleetShard,
    FleetState,
    ShardState,
    ShardStatus,
    UnreadShard,
    WorkerState,
)
from sparkinesis.worker.supervision.control_messages import Hello, Report
from sparkinesis.worker.supervision.gathered_reports import (
    DEPARTED,
    FAILURES,
    NOTES,
    GatheredReports,
)
from sparkinesis.worker.supervision.roster import Roster, Rules

RULES = Rules(2.0, 10.0, 1.0, 60.0)


def hello(worker: str, slot: int = 0) -> Hello:
    return Hello(worker, slot, 1, 0, f"host-of-{worker}", 42, 2, 3, is_running=True)


def shard(name: str, records: int, lag: int | None = None) -> ShardStatus:
    return ShardStatus(name, ShardState.PROCESSING, lag, 0.5, records)


def failure(mark: str, count: int = 1, shards: tuple[str, ...] = ("s",)) -> Failure:
    return Failure(mark, f"what {mark}", f"error {mark}", "Traceback", count, shards)


def with_workers(*workers: str) -> GatheredReports:
    reports: GatheredReports = GatheredReports()
    for worker in workers:
        reports = reports.add_hello(hello(worker), 0.0)
    return reports


def test_a_rate_follows_the_latest_reports() -> None:
    reports = with_workers("a")
    for second, records in enumerate([0, 200, 400, 600, 800, 1_000], start=1):
        report = Report((shard("s0", records // 2), shard("s1", records // 2)), records, True)
        reports, _ = reports.add_report("a", report, float(second))
    told = reports.workers["a"]
    assert 180 < told.rate < 200, "it comes near to 200 by halves"
    assert told.rates["s0"] == told.rates["s1"] == told.rate / 2
    for second in range(7, 20):
        reports, _ = reports.add_report(
            "a", Report((shard("s0", 500),), 1_000, True), float(second)
        )
    assert reports.workers["a"].rate < 1, "and ends with the records"
    assert set(reports.workers["a"].rates) == {"s0"}, "a shard that is gone has no rate"


def test_a_rate_is_by_seconds_and_never_negative() -> None:
    reports = with_workers("a")
    reports, _ = reports.add_report("a", Report((shard("s", 100),), 100, True), 10.0)
    assert reports.workers["a"].rate == 5.0, "half of 10 a second"
    before = reports.workers["a"]
    reports, _ = reports.add_report("a", Report((shard("s", 150),), 150, True), 10.0)
    assert reports.workers["a"].rate == before.rate, "no time has passed"
    reports, _ = reports.add_report("a", Report((shard("s", 10),), 160, True), 11.0)
    assert reports.workers["a"].rates["s"] >= 0, "the shard was lost and taken again"


def test_a_problem_lasts_until_a_report_without_it() -> None:
    roster = Roster(RULES).scaled(1).joined(hello("a"), 0.0)
    reports, _ = with_workers("a").add_report("a", Report((), 0, True, (), "no table"), 1.0)
    assert [each.problem for each in reports.status("app", "s", roster, 1.0).workers] == [
        "no table"
    ]
    reports, _ = reports.add_report("a", Report((), 0, True), 2.0)
    assert [each.problem for each in reports.status("app", "s", roster, 2.0).workers] == [None]


def test_a_failure_is_new_once_whoever_meets_it() -> None:
    reports = with_workers("a", "b")
    reports, new = reports.add_report("a", Report((), 0, True, (failure("x"), failure("y"))), 1.0)
    assert [each.fingerprint for each in new] == ["x", "y"]
    reports, new = reports.add_report("a", Report((), 0, True, (failure("x", 5),)), 2.0)
    assert not new
    reports, new = reports.add_report("b", Report((), 0, True, (failure("x", 2, ("t",)),)), 3.0)
    assert not new
    by_mark = {each.fingerprint: each for each in reports.failures}
    assert by_mark["x"].count == 7, "5 of a, 2 of b"
    assert by_mark["x"].shard_ids == ("s", "t")
    assert by_mark["y"].count == 1


def test_of_workers_that_are_gone_figures_and_failures_stay() -> None:
    reports = with_workers("a", "b")
    reports, _ = reports.add_report("a", Report((), 100, True, (failure("x"),)), 1.0)
    reports, _ = reports.add_report("b", Report((), 10, True, (failure("x"),)), 1.0)
    reports = reports.retain(["b"])
    assert set(reports.workers) == {"b"}
    reports = reports.retain([])
    status = reports.status("app", "stream", Roster(RULES), 2.0)
    assert status.records == 110
    assert [(each.fingerprint, each.count) for each in status.failures] == [("x", 2)]
    assert reports.retain([]) is reports
    reports, new = reports.add_hello(hello("c"), 2.0).add_report(
        "c", Report((), 1, True, (failure("x"),)), 3.0
    )
    assert not new, "others have met it before"


def test_a_worker_that_was_given_up_and_comes_back_counts_once() -> None:
    reports = with_workers("a")
    reports, _ = reports.add_report("a", Report((), 100, True, (failure("x", 4),)), 1.0)
    reports = reports.retain([]).add_hello(hello("a"), 9.0)
    status = reports.status("app", "stream", Roster(RULES), 9.0)
    assert (status.records, status.failures[0].count) == (100, 4)
    reports, _ = reports.add_report("a", Report((), 150, True, (failure("x", 5),)), 10.0)
    status = reports.retain([]).status("app", "stream", Roster(RULES), 9.0)
    assert (status.records, status.failures[0].count) == (150, 5)


def test_what_is_kept_has_a_limit() -> None:
    reports = with_workers()
    for number in range(200):
        name = f"w{number}"
        report = Report((), 1, True, (failure(f"x{number}"),))
        reports, _ = reports.add_hello(hello(name), 0.0).add_report(name, report, 1.0)
        reports = reports.retain([]).add_note(f"note {number}")
    assert len(reports.past_failures) <= FAILURES
    assert reports.notes == tuple(f"note {number}" for number in range(200 - NOTES, 200))
    status = reports.status("app", "stream", Roster(RULES), 2.0)
    assert status.records == 200
    assert status.failures[-1].fingerprint == "x199"


def test_a_shard_is_shown_as_its_worker_has_reported_it() -> None:
    given = msgspec.structs.replace(
        shard("s0", 3, 7), stream="s", lease="k:s0", standing_for=12.0, standing_because="why"
    )
    reports, _ = with_workers("a").add_report("a", Report((given,), 3, True), 1.0)
    roster = Roster(RULES).scaled(1).joined(hello("a"), 1.0)
    (shown,) = reports.status("app", "s", roster, 2.0).shards
    for name in {*FleetShard.__struct_fields__} & {*ShardStatus.__struct_fields__}:
        assert getattr(shown, name) == getattr(given, name), name


def test_a_report_of_somebody_unknown_changes_nothing() -> None:
    reports = with_workers("a")
    assert reports.add_report("b", Report((), 5, True, (failure("x"),)), 1.0) == (reports, [])


def test_the_status_tells_of_workers_by_slot_and_of_shards_by_name() -> None:
    roster = Roster(RULES).scaled(3)
    for slot, worker in enumerate("abc"):
        roster = roster.joined(hello(worker, 2 - slot), 10.0)
    roster = roster.disconnected("c", 11.0).scaled(4)
    reports = with_workers("a", "b", "c")
    reports, _ = reports.add_report(
        "a", Report((shard("s2", 1, 700), shard("s0", 2)), 3, True), 12.0
    )
    reports, _ = reports.add_report("b", Report((shard("s1", 4, 900),), 4, True), 12.0)
    reports, _ = reports.add_report("c", Report((shard("s9", 5, 10**9),), 5, True), 12.0)
    status = reports.status("app", "stream", roster, 15.0)
    assert (status.application, status.stream, status.wanted) == ("app", "stream", 4)
    assert status.state is FleetState.RUNNING
    assert [(w.worker_id, w.state, w.shards) for w in status.workers] == [
        ("c", WorkerState.LOST, 1),
        ("b", WorkerState.RUNNING, 1),
        ("a", WorkerState.RUNNING, 2),
    ]
    assert [w.millis_behind_latest for w in status.workers] == [10**9 + 3000, 900, 700]
    assert [w.heard_ago for w in status.workers] == [4.0, 5.0, 5.0]
    shards = [(each.shard_id, each.worker_id) for each in status.shards]
    assert shards == [("s0", "a"), ("s1", "b"), ("s2", "a")]
    assert status.unread == (UnreadShard("s9", "c", 10**9 + 3000, "stream", "s9"),)
    assert status.millis_behind_latest == 10**9 + 3000
    assert status.records == 12
    assert msgspec.structs.replace(status, unread=()).millis_behind_latest == 900
    assert msgspec.structs.replace(status, shards=(), unread=()).millis_behind_latest is None


def test_the_shards_of_a_killed_worker_age_until_another_reads_them() -> None:
    """Also before the lease table shows it, and after the driver has forgotten the worker."""
    roster = Roster(RULES).scaled(2)
    for slot, worker in enumerate("ab"):
        roster = roster.joined(hello(worker, slot), 0.0)
    reports = with_workers("a", "b")
    told = Report((shard("s0", 5, 40), shard("s1", 5)), 10, True)
    reports, _ = reports.add_report("a", told, 1.0)
    roster = roster.disconnected("a", 2.0)
    reports = reports.add_loss("a")
    lags = []
    for second in range(2, 14):
        unread = {"s0": 1.0, "s1": 1.0} if second > 9 else {}
        mine = (shard("s1", 0, 7), shard("s2", 1)) if second > 11 else (shard("s2", 1),)
        beat = Report(mine, 1, True, unread=unread)
        reports, _ = reports.add_report("b", beat, float(second))
        if second == 11:
            reports = reports.retain(["b"])
        status = reports.status("app", "stream", roster, float(second))
        lags.append(status.millis_behind_latest)
        assert status.lost_workers == 1
    assert lags == [40 + 1000 * (second - 1) for second in range(2, 14)]
    last = UnreadShard("s0", "a", 12_040, "stream", "s0")
    assert status.unread == (last,), "b reads the other one"
    assert [each.shard_id for each in status.shards] == ["s1", "s2"]


def test_a_worker_that_is_heard_of_no_longer_may_not_read() -> None:
    """Its connection lasts, as that of a process that stands still."""
    rules = Rules(2.0, 10.0, 1.0, 60.0)
    roster = Roster(rules).scaled(1).joined(hello("a"), 0.0)
    reports, _ = with_workers("a").add_report("a", Report((shard("s0", 5, 40),), 5, True), 1.0)
    status = reports.status("app", "stream", roster, 7.0)
    assert (status.millis_behind_latest, status.unread) == (40, ())
    status = reports.status("app", "stream", roster, 7.1)
    assert (status.millis_behind_latest, status.shards) == (6_140, ())
    assert [each.millis_behind_latest for each in status.workers] == [6_140]
    patient = replace(roster, rules=Rules(0.1, 20.0, 1.0, 60.0))
    assert reports.status("app", "stream", patient, 11.0).unread == ()


def test_records_may_be_missing_of_lost_workers_only() -> None:
    reports = with_workers("a", "b", "c")
    roster = Roster(RULES)
    reports = reports.add_loss("a").add_loss("b")
    assert reports.status("app", "s", roster, 1.0).lost_workers == 2
    reports = reports.add_hello(hello("b"), 2.0)
    assert reports.status("app", "s", roster, 2.0).lost_workers == 1, "b is back"
    for number in range(100):
        name = f"w{number}"
        reports = reports.add_hello(hello(name), 3.0).add_loss(name).retain([])
    assert reports.status("app", "s", roster, 4.0).lost_workers == 101
    assert len(reports.lost) <= DEPARTED
