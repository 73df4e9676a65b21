from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkinesis.source.planning.probe_threads import MOST_THREADS, ProbeThreads, threads_for


@pytest.mark.parametrize(
    ("shards", "threads"),
    [(1, 1), (15, 15), (16, 16), (256, 16), (512, 32), (1_000, 62), (1_024, 64), (100_000, 64)],
)
def test_threads_grow_with_the_shards_up_to_a_bound(shards: int, threads: int) -> None:
    assert threads_for(shards) == threads <= MOST_THREADS


def test_each_item_is_done_once_by_the_threads_that_there_are() -> None:
    done: Counter[int] = Counter()
    lock = threading.Lock()
    names: set[str] = set()

    def do(item: int) -> None:
        with lock:
            done[item] += 1
            names.add(threading.current_thread().name)

    ProbeThreads().for_all(range(5_000), do)
    assert done == Counter(range(5_000))
    assert len(names) <= MOST_THREADS


def test_items_are_done_at_the_same_time() -> None:
    together = threading.Barrier(16)
    ProbeThreads().for_all(range(16), lambda _: together.wait(timeout=60))


def test_the_first_error_in_the_order_of_the_items_is_raised_and_no_item_is_begun_after_it() -> (
    None
):
    begun: list[int] = []
    second_failed = threading.Event()

    def do(item: int) -> None:
        begun.append(item)
        if item == 0:
            second_failed.wait(timeout=60)
            raise ValueError("the first")
        if item == 1:
            second_failed.set()
            raise ValueError("the second")
        second_failed.wait(timeout=60)

    with pytest.raises(ValueError, match="the first"):
        ProbeThreads().for_all(range(10_000), do)
    assert len(begun) < 200


def test_threads_are_kept_from_call_to_call_and_end_with_their_owner() -> None:
    threads = ProbeThreads()
    before = set(threading.enumerate())
    seen: set[threading.Thread] = set()
    for _ in range(20):
        together = threading.Barrier(16)
        threads.for_all(range(16), lambda _: together.wait(timeout=60))  # noqa: B023
        seen |= set(threading.enumerate()) - before
    assert 15 <= len(seen) < 30
    del threads
    for thread in seen:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_calls_within_calls_wait_for_no_thread() -> None:
    threads = ProbeThreads()
    callers = 2
    all_at_work = threading.Barrier(MOST_THREADS + callers)
    known = threading.local()
    done: list[int] = []

    def outer(_: int) -> None:
        if not hasattr(known, "has_met"):
            known.has_met = True
            all_at_work.wait(timeout=60)  # no thread is free
        threads.for_all(range(4), done.append)

    with ThreadPoolExecutor(callers) as pool:
        for one in [pool.submit(threads.for_all, range(2_000), outer) for _ in range(callers)]:
            one.result(timeout=60)
    assert Counter(done) == dict.fromkeys(range(4), 2_000 * callers)


def test_results_come_in_the_order_of_the_names() -> None:
    found = ProbeThreads().results("cab", lambda name: name.upper())
    assert list(found.items()) == [("c", "C"), ("a", "A"), ("b", "B")]


def test_no_call_goes_on_when_a_signal_ends_the_wait() -> None:
    has_begun = threading.Event()
    begun: list[int] = []
    done: list[int] = []

    def do(item: int) -> None:
        if threading.current_thread() is threading.main_thread():
            has_begun.wait(timeout=60)
            raise SystemExit
        begun.append(item)
        has_begun.set()
        time.sleep(0.05)  # a call
        done.append(item)

    with pytest.raises(SystemExit):
        ProbeThreads().for_all(range(10_000), do)
    assert sorted(begun) == sorted(done)
    assert 0 < len(done) < 200
