"""The pool of steps: one at a time, at their time, and no step waits for another that blocks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import pytest

from sparkinesis.metrics.health.liveness import SignOfLife, expect
from sparkinesis.worker.retrieval import step_pool
from sparkinesis.worker.retrieval.pool_threads import TICK, threads_to_add
from sparkinesis.worker.retrieval.step_pool import JOIN, StepPool, Work
from tests.pace import eventually

PATIENCE = 30.0


@pytest.fixture
def pool() -> Iterator[StepPool]:
    made = StepPool("test")
    yield made
    made.close()


def finish(*steps: Work) -> None:
    """Start work, and wait until all of it has ended."""
    for step in steps:
        step.start()
    eventually(lambda: all(step.has_ended for step in steps))


class Counted:
    """Work that returns the given pauses, one for each step, and counts its steps."""

    def __init__(self, pool: StepPool, *pauses: float | None) -> None:
        self.times: list[float] = []
        self._pauses = list(pauses)
        self._changed = threading.Condition()
        self.step = pool.new_work(self._run)

    def _run(self) -> float | None:
        with self._changed:
            self.times.append(time.monotonic())
            self._changed.notify_all()
            return self._pauses.pop(0) if self._pauses else None

    def wait_for(self, steps: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.times) >= steps, PATIENCE)

    def wait_for_end(self) -> None:
        eventually(lambda: self.step.has_ended)


def test_work_says_when_it_goes_on(pool: StepPool) -> None:
    work = Counted(pool, 0.0, 0.05, None)
    work.step.start()
    work.wait_for(3)
    work.wait_for_end()
    assert work.times[2] - work.times[1] >= 0.05
    assert len(work.times) == 3


def test_a_wake_ends_a_pause_of_any_length(pool: StepPool) -> None:
    work = Counted(pool, math.inf, 3600.0, None)
    work.step.start()
    for steps in (1, 2):
        work.wait_for(steps)
        work.step.wake()
    work.wait_for(3)
    work.wait_for_end()


def test_a_wake_during_a_step_leads_to_another_step(pool: StepPool) -> None:
    runs = 0

    def run() -> float | None:
        nonlocal runs
        runs += 1
        if runs == 1:
            step.wake()
        return math.inf if runs < 2 else None

    step = pool.new_work(run)
    finish(step)
    assert runs == 2


def test_a_wake_before_the_start_and_after_the_end_does_nothing(pool: StepPool) -> None:
    work = Counted(pool)
    work.step.wake()
    assert not work.times
    finish(work.step)
    work.step.wake()
    work.step.start()
    other = Counted(pool)
    finish(other.step)
    assert len(work.times) == 1


def test_steps_of_one_work_never_overlap(pool: StepPool) -> None:
    """However often it is woken, and by how many threads."""
    inside, most, runs = 0, 0, 0

    def run() -> float | None:
        nonlocal inside, most, runs
        inside += 1
        most = max(most, inside)
        time.sleep(0.001)
        runs += 1
        inside -= 1
        return math.inf if runs < 20 else None

    step = pool.new_work(run)
    step.start()

    def wake() -> None:
        while not step.has_ended:
            step.wake()

    threads = [threading.Thread(target=wake) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert step.has_ended
    assert most == 1


def block_each_other(pool: StepPool, count: int) -> None:
    """Take steps that block until the last of them runs."""
    barrier = threading.Barrier(count)
    finish(*(pool.new_work(lambda: _meet(barrier)) for _ in range(count)))


def test_no_step_waits_for_another_that_blocks(pool: StepPool) -> None:
    block_each_other(pool, 40)
    assert pool.threads == 40


def test_short_steps_share_a_few_threads(pool: StepPool) -> None:
    """A thousand shards that have something to do now and then."""
    works = [Counted(pool, *([0.001] * 5), None) for _ in range(200)]
    finish(*(work.step for work in works))
    assert all(len(work.times) == 6 for work in works)
    assert pool.threads <= 20


def test_threads_without_work_end(pool: StepPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_pool, "_KEEP", 0.05)
    block_each_other(pool, 40)
    eventually(lambda: pool.threads == 0)
    work = Counted(pool)
    work.step.start()  # a new one is made
    work.wait_for_end()


def test_a_closed_pool_ends_with_its_work(pool: StepPool) -> None:
    before = set(threading.enumerate())
    work = Counted(pool, math.inf)
    work.step.start()
    work.wait_for(1)
    pool.close()
    own = [each for each in threading.enumerate() if each not in before]
    assert own
    assert all(each.is_alive() for each in own)
    work.step.wake()
    for thread in own:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in own)
    assert work.step.has_ended


def test_an_error_ends_its_work_and_no_other(
    pool: StepPool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> float | None:
        raise SystemExit("a bug")

    with caplog.at_level(logging.ERROR):
        failing = pool.new_work(fail)
        finish(failing)
    assert "A step of test ended with an error" in caplog.text
    work = Counted(pool, 0.0, None)
    finish(work.step)


def test_steps_run_in_the_context_in_which_the_work_was_made(pool: StepPool) -> None:
    place: ContextVar[str] = ContextVar("place", default="nowhere")
    seen: list[str] = []

    def look() -> float | None:
        seen.append(place.get())
        place.set("kept from step to step")
        return 0.0 if len(seen) < 2 else None

    step = pool.new_work(look, lambda: place.set("prepared"))
    finish(step)
    assert seen == ["prepared", "kept from step to step"]
    assert place.get() == "nowhere"


def test_work_whose_time_has_come_does_not_wait_for_a_later_one(pool: StepPool) -> None:
    """The watch sleeps until the hour of the first; the second is due long before."""
    late, soon = Counted(pool, 3600.0), Counted(pool, 0.02, None)
    late.step.start()
    late.wait_for(1)
    finish(soon.step)
    assert len(late.times) == 1
    late.step.wake()


def test_steps_that_are_due_together_do_not_wait_for_one_that_blocks(pool: StepPool) -> None:
    barrier = threading.Barrier(5)

    def run() -> Iterator[float | None]:
        yield 0.02
        barrier.wait(PATIENCE)
        yield None

    finish(*(pool.new_work(partial(next, run())) for _ in range(5)))


class Rung:
    """Stands for a thread without work; notes that it was rung for."""

    def __init__(self) -> None:
        self.is_rung = False

    def ring(self) -> None:
        self.is_rung = True


def test_one_thread_is_rung_for_steps_that_are_due_together_and_one_for_each_that_is_woken() -> (
    None
):
    now = [100.0]
    pool = StepPool("test", lambda: now[0])
    threads = cast(Any, [Rung() for _ in range(9)])
    pool._threads._idle, pool._threads.count = threads, 9
    steps = [pool.new_work(lambda: None) for _ in range(6)]
    for step in steps[:4]:
        step._due = 101.0
        pool._timers.add(step)
    now[0] = 101.0

    def rung() -> int:
        return 9 - len(threads)

    pool._begin_due(now[0])
    pool._summon()
    assert rung() == 1, "it has not looked yet"
    pool._threads.grow(iter([9.0]), is_on_time=True)
    assert pool.threads == 9, "others have no work"
    pool._threads.summoned -= 1  # it looks
    assert pool._take_ready() in steps
    assert rung() == 1
    assert pool._next_due(now[0]) == now[0] + JOIN
    for step in steps[4:]:
        pool._make_ready(step)
    pool._summon()
    assert rung() == 2
    taken = []
    while pool._ready:
        pool._threads.summoned -= 1
        taken.append(pool._take_ready())
    assert taken[-2:] == steps[4:]
    assert rung() == 2 + 4, "one after the other, until those that were woken are taken"


def test_work_goes_on_where_no_thread_can_be_added(
    pool: StepPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine's limit is reached: those that are there serve all, and more come later."""
    go_on, refused = threading.Event(), threading.Event()
    first = Counted(pool, None)
    finish(first.step)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("test-") and not go_on.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    barrier = threading.Barrier(3)
    steps = [pool.new_work(lambda: _meet(barrier)) for _ in range(3)]
    for step in steps:
        step.start()
    assert refused.wait(PATIENCE)
    assert not any(step.has_ended for step in steps)
    go_on.set()
    eventually(lambda: all(step.has_ended for step in steps))
    assert "no other can start: can't start new thread" in caplog.text


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait(PATIENCE)


@pytest.mark.parametrize(
    ("alive", "waits", "added_ago", "is_on_time", "added"),
    [
        (2, [TICK], 9.0, True, 1),
        (8, [TICK] * 30, 9.0, True, 8),
        (19, [TICK] * 30, 9.0, True, 1),
        (20, [0.29] * 30, 9.0, True, 0),
        (20, [0.3] * 30, 9.0, True, 1),
        (40, [0.99] * 30, 9.0, True, 0),
        (40, [1.0] * 30, 9.0, True, 1),
        (8, [0.09] * 30, 9.0, False, 0),
        (8, [0.1] * 30, 9.0, False, 1),
        (8, [0.1] * 30, 0.09, False, 0),
    ],
)
def test_beyond_twenty_threads_or_without_cpu_time_a_step_waits_longer_for_one_of_its_own(
    alive: int, waits: list[float], added_ago: float, *, is_on_time: bool, added: int
) -> None:
    """A thousand shards that are due at once take no thread each; those that block get theirs."""
    found = threads_to_add(alive, iter(waits), added_ago, is_on_time=is_on_time)
    assert found == added


def test_a_step_gives_no_sign_of_life_of_the_loop_that_started_it(pool: StepPool) -> None:
    sign = SignOfLife(time.monotonic)
    work: list[Work] = []

    def run() -> None:
        return expect(1000.0)

    sign.during(lambda: work.append(pool.new_work(run)))
    finish(work[0])
    assert sign.due < time.monotonic() + 500


def test_a_pool_stands_still_if_steps_are_due_and_none_begins() -> None:
    now = 100.0
    pool = StepPool("test", lambda: now)
    idle = pool.part("it")
    assert idle.due > now
    blocked = threading.Event()
    steps = [pool.new_work(lambda: blocked.wait() and None) for _ in range(2)]
    for step in steps:
        step.start()
    eventually(lambda: pool._ready.taken == 2)
    now += 1000.0
    assert pool.part("it").due > now, "steps that block are no matter of the pool"
    pool._threads.summoned = 1  # as if a thread that was rung for had died
    pool.new_work(lambda: None).start()
    pool._watch.wakes_at = now + 2000.0
    assert pool.part("it").due > now
    now += 11.0
    assert pool.part("it").due < now
    pool._threads._refused_until = now + 1.0
    assert pool.part("it").due > now, "the operating system permits no thread"
    blocked.set()
    pool.close()


def test_a_pool_stands_still_if_nobody_watches_the_time() -> None:
    now = 100.0
    pool = StepPool("test", lambda: now)
    pool._watch.wakes_at = 150.0
    now = 155.0
    assert pool.part("it").due > now
    now = 161.0
    assert pool.part("it").due < now


class Woken:
    """Work that waits to be woken, notes where its steps run, and lets some of them wait."""

    def __init__(self, pool: StepPool) -> None:
        self.threads: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails = False
        self._pool = pool
        self.step = pool.new_work(self._run)
        self.step.start()
        eventually(lambda: len(self.threads) == 1 and not pool.is_at_work)

    def _run(self) -> float:
        assert self._pool.runs_here()
        self.threads.append(threading.get_ident())
        assert self.may_go_on.wait(PATIENCE)
        if self.fails:
            raise ValueError("no")
        return math.inf


class Waking:
    """Work whose next step wakes other work in its own name, and goes on with another step."""

    def __init__(self, pool: StepPool) -> None:
        self.threads: list[int] = []
        """Those of steps that woke other work."""
        self.woken: Work | None = None
        self.rests = 0
        self.step = pool.new_work(self._run)
        self.step.start()
        eventually(lambda: self.rests == 1 and not pool.is_at_work)

    def wake(self, other: Work) -> None:
        rests, self.woken = self.rests, other
        self.step.wake()
        eventually(lambda: self.woken is None and self.rests > rests)

    def _run(self) -> float:
        other, self.woken = self.woken, None
        if other is None:
            self.rests += 1
            return math.inf
        self.threads.append(threading.get_ident())
        other.wake(self.step)
        return 0.0


@pytest.fixture
def other_pool() -> Iterator[StepPool]:
    made = StepPool("other")
    yield made
    made.close()


def test_work_of_another_pool_goes_on_in_the_thread_that_wakes_it(
    pool: StepPool, other_pool: StepPool
) -> None:
    woken, waking = Woken(other_pool), Waking(pool)
    for times in (2, 3):
        waking.wake(woken.step)
        eventually(lambda: len(woken.threads) == times and not pool.is_at_work)  # noqa: B023
        assert woken.threads[-1] == waking.threads[-1]
        assert not other_pool.is_at_work


def test_one_thread_is_lent_at_a_time_and_its_own_pool_goes_on(
    pool: StepPool, other_pool: StepPool
) -> None:
    slow, quick, waking = Woken(other_pool), Woken(other_pool), Waking(pool)
    slow.may_go_on.clear()
    waking.wake(slow.step)
    eventually(lambda: len(slow.threads) == 2)
    assert other_pool.is_at_work
    waking.wake(quick.step)
    eventually(lambda: len(quick.threads) == 2)
    assert slow.threads[-1] not in {quick.threads[-1], waking.threads[-1]}
    assert quick.threads[-1] not in waking.threads
    slow.may_go_on.set()
    eventually(lambda: not pool.is_at_work)
    waking.wake(quick.step)
    eventually(lambda: len(quick.threads) == 3)
    assert quick.threads[-1] == waking.threads[-1]


def test_a_thread_that_was_lent_to_a_step_that_fails_is_lent_again(
    pool: StepPool, other_pool: StepPool
) -> None:
    failing, sound, waking = Woken(other_pool), Woken(other_pool), Waking(pool)
    failing.fails = True
    waking.wake(failing.step)
    eventually(lambda: failing.step.has_ended and not pool.is_at_work)
    waking.wake(sound.step)
    eventually(lambda: len(sound.threads) == 2)
    assert sound.threads[-1] == waking.threads[-1]


def test_no_thread_is_lent_within_a_pool(pool: StepPool) -> None:
    woken, waking = Woken(pool), Waking(pool)
    eventually(lambda: not pool.is_at_work)
    waking.wake(woken.step)
    eventually(lambda: len(woken.threads) == 2)
    waking.wake(woken.step)
    eventually(lambda: len(woken.threads) == 3)
