from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparkinesis.lease.table.client import _READ_TIMEOUT
from sparkinesis.metrics.health.liveness import (
    CONFIRMED,
    PATIENCE,
    Liveness,
    Part,
    QueueSign,
    SignOfLife,
    after_check,
    detach,
    expect,
    helping,
    problems,
    waiting,
)
from tests.clocks import MovedClock


def due_after(clock: MovedClock, run: Callable[[], object]) -> float:
    """The seconds until a loop that has run this is due to give a sign."""
    sign = SignOfLife(clock)
    sign.during(run)
    return sign.due - clock.now


def in_another_thread() -> None:
    other = threading.Thread(target=expect, args=(60.0,))
    other.start()
    other.join()


def detached() -> None:
    """Work that a loop only starts."""
    detach()
    expect(60.0)


@pytest.mark.parametrize(
    ("run", "due"),
    [
        (lambda: None, PATIENCE),
        (lambda: expect(1.0), PATIENCE),
        (lambda: expect(60.0), 65.0),
        (in_another_thread, PATIENCE),
        (detached, PATIENCE),
    ],
)
def test_a_loop_may_be_silent_for_as_long_as_it_announces_and_a_margin(
    clock: MovedClock, run: Callable[[], object], due: float
) -> None:
    assert due_after(clock, run) == due


def test_a_call_of_dynamodb_that_hangs_is_seen_within_fifteen_seconds(clock: MovedClock) -> None:
    """Its timeout is 5 s; a look is made every half second."""
    seen = due_after(clock, lambda: expect(_READ_TIMEOUT)) + CONFIRMED + 1.0
    assert seen < 15.0


def test_a_wait_is_announced_and_its_end_is_a_sign(clock: MovedClock) -> None:
    sign = SignOfLife(clock)
    seen: list[float] = []

    def wait(seconds: float) -> str:
        seen.append(sign.due - clock.now)
        clock.now += seconds
        return "result"

    sign.during(lambda: seen.append(len(waiting(wait)(30.0))))
    assert seen == [35.0, len("result")]
    assert sign.due == clock.now + PATIENCE


def test_a_loop_is_due_when_the_first_of_its_helpers_is(clock: MovedClock) -> None:
    sign = SignOfLife(clock)
    dues: list[float] = []
    held, go_on = threading.Event(), threading.Event()

    def help_with(seconds: float) -> None:
        expect(seconds)
        held.set()
        go_on.wait()

    def run() -> None:
        helper = threading.Thread(target=helping(help_with), args=(20.0,))
        helper.start()
        held.wait()
        expect(1000.0)
        helping(expect)(500.0)
        dues.append(sign.due - clock.now)
        clock.now += 40
        dues.append(sign.due - clock.now)
        go_on.set()
        helper.join()

    sign.during(run)
    assert dues == [25.0, -15.0]
    assert sign.due == clock.now + PATIENCE


def test_a_queue_goes_on_while_its_work_is_taken(clock: MovedClock) -> None:
    progress, begin = QueueSign(clock), clock.now
    assert progress.due(0) == begin + PATIENCE
    clock.now += 8
    assert progress.due(0) == begin + PATIENCE
    assert progress.due(1) == begin + 8 + PATIENCE
    clock.now += 50
    assert progress.due(None) == begin + 58 + PATIENCE
    clock.now += 50
    assert progress.due(1) == begin + 108 + PATIENCE


def test_a_part_stands_still_when_looks_confirm_it() -> None:
    part = Part("the loop", due=10.0)
    late: dict[str, float] = {}
    for now, is_still in [(9.5, False), (10.5, False), (11.5, False), (12.5, True)]:
        late = after_check(late, [part], now, 1.0)
        assert bool(problems([part], late, now)) is is_still, now


def test_a_part_that_gives_a_sign_begins_anew() -> None:
    late = after_check({"the loop": 1.9}, [Part("the loop", due=20.0)], 15.0, 1.0)
    assert late == {}
    late = after_check(late, [Part("the loop", due=20.0)], 21.0, 1.0)
    assert problems([Part("the loop", due=20.0)], late, 21.0) == ()


def test_a_part_that_died_or_is_fine_again_needs_no_further_look() -> None:
    assert problems([Part("the loop", is_dead=True)], {}, 0.0) == ("the loop has died",)
    assert problems([Part("the loop", due=200.0)], {"the loop": 60.0}, 100.0) == ()


def test_the_time_in_which_a_process_was_stopped_does_not_count(clock: MovedClock) -> None:
    part = Part("the loop", due=clock.now + 5)
    live = Liveness(lambda: [part], clock)
    clock.now += 600  # stopped
    live.check()
    assert live.problems() == ()
    clock.now += 0.5
    live.check()
    assert live.problems() == ()
    for _ in range(4):
        clock.now += 0.5
        live.check()
    (text,) = live.problems()
    assert "the loop stands still" in text


def test_one_late_look_confirms_nothing(clock: MovedClock) -> None:
    part = Part("the loop", due=clock.now + 5)
    live = Liveness(lambda: [part], clock)
    for stopped in (600.0, 600.0):
        clock.now += stopped
        live.check()
    assert live.problems() == ()
