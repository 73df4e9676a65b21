from __future__ import annotations

import threading
from collections import Counter

import pytest

from sparkinesis.source.planning.probe_threads import MOST_THREADS, for_all, threads_for


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

    for_all(range(5_000), do)
    assert done == Counter(range(5_000))
    assert len(names) <= MOST_THREADS
    assert threading.main_thread().name not in names


def test_items_are_done_at_the_same_time() -> None:
    together = threading.Barrier(16)
    for_all(range(16), lambda _: together.wait(timeout=60))


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
        for_all(range(10_000), do)
    assert len(begun) < 200
