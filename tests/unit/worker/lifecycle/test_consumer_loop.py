"""A worker's reports of its progress, by its own clock."""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.events import Event, WorkerEnded, WorkerReport
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.worker.lifecycle.consumer_loop import WorkerProgress


def lags(
    standing: dict[str, float] | None = None, **behind: int | None
) -> Callable[[], list[ShardStatus]]:
    """The state of shards by their lags, and for how long some of them stand still."""
    return lambda: [
        ShardStatus(
            one,
            ShardState.PROCESSING,
            lag,
            None,
            lease=one,
            standing_for=(standing or {}).get(one),
        )
        for one, lag in behind.items()
    ]


class Watched:
    """A worker's progress, with a clock and a count of records that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.records = 0
        self.told: list[Event] = []
        self.progress = WorkerProgress(
            "w", lambda: self.now, self.told.append, lambda: self.records
        )


def test_a_report_a_minute_counts_what_was_processed_since_the_last() -> None:
    one = Watched()
    seen = lags(s1=500, s0=500, s2=20, s3=None)
    for second in range(1, 122):
        one.now, one.records = 1000.0 + second, 10 * second + (1000 if second > 60 else 0)
        one.progress.step(seen)
    assert one.told == [
        WorkerReport(60.0, 4, 600, 500, "s0"),
        WorkerReport(60.0, 4, 1600, 500, "s0"),
    ]
    assert isinstance(one.told[0], WorkerReport)
    assert one.told[0].records_per_second == 10.0


def test_a_report_names_the_shards_that_stand_still_the_longest_first() -> None:
    one = Watched()
    one.now = 1060.0
    one.progress.step(lags({"s0": 60.0, "s1": 59.0, "s2": 75.0}, s0=0, s1=0, s2=75_000))
    (told,) = one.told
    assert told == WorkerReport(60.0, 3, 0, 75_000, "s2", (("s2", 75.0), ("s0", 60.0)))
    assert told.line().text == (
        "3 shards, 0.0 records/s, 75.0 s behind (s2); standing still: s2 for 75 s, s0 for 60 s"
    )


def test_a_report_is_by_the_time_that_has_passed() -> None:
    """As after a pause of the process."""
    one = Watched()
    one.now, one.records = 1120.0, 240
    one.progress.step(lags())
    (told,) = one.told
    assert told == WorkerReport(120.0, 0, 240, None, None)
    assert isinstance(told, WorkerReport)
    assert told.records_per_second == 2.0


def test_the_last_report_is_of_the_whole_life() -> None:
    one = Watched()
    one.now, one.records = 1061.0, 5
    one.progress.step(lags(s0=None))
    one.now, one.records = 1070.0, 7
    one.progress.report_end(was_forced=True, error="x")
    assert one.told == [
        WorkerReport(61.0, 1, 5, None, None),
        WorkerEnded("w", 70.0, 7, True, "x"),
    ]
