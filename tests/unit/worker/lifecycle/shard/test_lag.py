"""U3: the lag of a shard by what its worker has of it, and when to warn of a shard without
progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import ServiceError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.shard.lag import (
    UNHEARD_AFTER,
    Front,
    Reading,
    Standstill,
    TaskWatch,
    Warnings,
    millis_behind,
)
from sparkinesis.worker.lifecycle.shard.states import Task
from tests.unit.worker.delivering import batch_of

SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("figure", "unheard", "oldest", "lag"),
    [
        (None, None, None, None),
        (None, 5.0, None, None),
        (0, 1.0, None, 0),
        (1500, UNHEARD_AFTER, None, 1500),
        (0, 1.0, 62.5, 62_500),
        (3_600_000, 20.0, 5.0, 3_600_000),
        (0, UNHEARD_AFTER + 1, None, 31_000),
        (1500, 61.0, None, 62_500),
        (None, 61.0, None, 61_000),
        (1500, 61.0, 2.0, 2_000),
    ],
    ids=[
        "a shard that is not read",
        "none was read yet",
        "at the tip",
        "a wait that is usual",
        "a processor holds what the last page brought",
        "the page is old itself",
        "no page comes",
        "no page comes to a reader that was behind",
        "no page ever came",
        "the page's records are newer than the wait for another",
    ],
)
def test_the_lag(
    figure: int | None, unheard: float | None, oldest: float | None, lag: int | None
) -> None:
    assert millis_behind(Reading(figure, unheard, oldest)) == lag


@given(st.none() | st.integers(0, 10**9), st.none() | SECONDS, SECONDS, SECONDS)
def test_the_lag_is_never_less_than_the_age_of_what_is_held(
    figure: int | None, unheard: float | None, oldest: float, wait: float
) -> None:
    lag = millis_behind(Reading(figure, unheard, oldest), wait)
    assert lag is not None
    assert lag >= round(oldest * 1000)
    assert lag >= (figure or 0)


def test_a_reader_that_polls_rarely_is_not_late_between_two_pages() -> None:
    assert millis_behind(Reading(0, 600.0, None), usual_wait=600.0) == 0


@pytest.mark.parametrize(
    ("batch", "has_failed", "text"),
    [
        (batch_of(), False, "process_records has not returned from an empty batch"),
        (batch_of(7), False, "process_records has not returned from record 7:0"),
        (batch_of(7, 8), True, "process_records fails again and again on 2 records up to 8:0"),
    ],
)
def test_what_holds_a_shard_up_in_words(batch: RecordBatch, *, has_failed: bool, text: str) -> None:
    assert str(Front(0.0, batch, has_failed)) == text


def test_the_standstill_that_began_first_counts() -> None:
    now = [3.0]
    tasks = TaskWatch(lambda: now[0])
    assert tasks.standstill(None, None) is None
    tasks.begin(Task.PROCESS)
    assert tasks.standstill(None, None) == (3.0, "the task 'process' has not ended")
    front = Front(1.0, batch_of(7), has_failed=False)
    assert tasks.standstill(front, None) == (1.0, front)
    why = "automatic checkpoints fail again and again"
    assert tasks.standstill(front, 0.5) == (0.5, why)
    tasks.end()
    for problem in (ServiceError("no"), None):
        tasks.failed(Task.PROCESS, problem)
        now[0] += 1.0
    assert tasks.standstill(None, 3.5) == (3.0, "the task 'process' fails again and again")
    assert tasks.failures == 2
    assert tasks.problem is not None
    assert tasks.problem[1] == 3.0
    tasks.succeeded()
    assert tasks.failures == 0
    assert tasks.standstill(None, None) is None


class Watched:
    def __init__(self) -> None:
        self.warnings = Warnings(60.0)
        self.told: list[tuple[str, float]] = []

    def look(self, now: float, since: float | None) -> None:
        standstill = None if since is None else Standstill(since, "")
        if (seconds := self.warnings.over("s0", standstill, now)) is not None:
            self.told.append(("over", seconds))
        if standstill is not None and self.warnings.due("s0", standstill, now):
            self.told.append(("still", now - standstill.since))


def test_a_standstill_is_told_ever_more_rarely_and_its_end_once() -> None:
    one = Watched()
    for now in range(600):
        one.look(float(now), 0.0)
    one.look(601.0, None)
    one.look(602.0, None)
    still = [("still", seconds) for seconds in (60.0, 120.0, 240.0, 480.0)]
    assert one.told == [*still, ("over", 601.0)]


def test_the_next_standstill_is_told_after_the_same_time() -> None:
    one = Watched()
    for now in (59.0, 60.0, 61.0):
        one.look(now, 0.0)
    for now in (62.0, 121.0, 122.0):
        one.look(now, 62.0)
    assert one.told == [("still", 60.0), ("over", 62.0), ("still", 60.0)]


def test_a_standstill_that_was_too_short_to_be_told_does_not_end() -> None:
    one = Watched()
    one.look(59.0, 0.0)
    one.look(60.0, None)
    assert one.told == []


def test_a_shard_that_is_left_is_forgotten() -> None:
    one = Watched()
    one.look(60.0, 0.0)
    one.warnings.forget("s0")
    one.look(61.0, None)
    one.look(62.0, 0.0)
    assert one.told == [("still", 60.0), ("still", 62.0)]
