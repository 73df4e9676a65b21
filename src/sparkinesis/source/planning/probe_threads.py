"""The threads that probe shards, or plan streams: as many as these need, within a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")

FEWEST_THREADS = 16
"""The threads for up to 256 shards, or one for each shard if these are fewer."""

MOST_THREADS = 64
"""Calls of 10 to 30 ms need no more: 64 threads make 2,000 to 6,000 calls a second, which is what
one core sends and reads."""

_SHARDS_OF_A_THREAD = 16


def threads_for(shards: int, fewest: int = FEWEST_THREADS) -> int:
    """Return the number of threads for ``shards`` shards: ``fewest``, or more for many shards.

    A probe of all shards should not take longer than the time between two: 1,000 calls of
    10 ms take 16 threads 0.6 seconds.
    """
    wanted = max(fewest, shards // _SHARDS_OF_A_THREAD)
    return min(shards, wanted, MOST_THREADS)


class ProbeThreads:
    """The threads for probes of the shards of a stream, kept from plan to plan. For any thread.

    An idle query probes every second: to start the threads anew cost half of a probe of 16 shards.
    """

    def __init__(self, fewest: int = FEWEST_THREADS) -> None:
        """``fewest``: as of `threads_for`."""
        self._fewest = fewest
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="probe")
        """Starts a thread for a call when none is free, up to that number."""

    def results(self, names: Iterable[str], call: Callable[[str], _T]) -> dict[str, _T]:
        """Call for each name as `for_all` does, and return the results in the names' order."""
        names = list(names)
        found: dict[str, _T] = {}

        def keep(name: str) -> None:
            found[name] = call(name)

        self.for_all(names, keep)
        return {name: found[name] for name in names}

    def those(self, items: Iterable[_T], holds: Callable[[_T], bool]) -> set[_T]:
        """Return the items for which a condition holds; it is asked as by `for_all`."""
        found: set[_T] = set()

        def ask(item: _T) -> None:
            if holds(item):
                found.add(item)

        self.for_all(items, ask)
        return found

    def for_all(self, items: Iterable[_T], do: Callable[[_T], object]) -> None:
        """Call ``do`` for each item, in parallel, this thread being one of those that call.

        Each thread takes the next item once it is done with one: a future for each of thousands of
        items would cost as much as a tenth of their calls. After an error no item is begun; raises
        the error of the first item that failed, in the order of the items. However this ends, also
        by a signal, all calls have returned.
        """
        todo = list(enumerate(items))
        left = iter(todo)
        failed: list[tuple[int, Exception]] = []

        def work() -> None:
            for place, item in left:
                if failed:
                    return
                try:
                    do(item)
                except Exception as error:  # noqa: BLE001 - raised below
                    failed.append((place, error))

        others: list[Future[None]] = []
        try:
            count = threads_for(len(todo), self._fewest) - 1
            others.extend(self._pool.submit(work) for _ in range(count))
            work()
        finally:
            deque(left, maxlen=0)  # no item is begun any more
            for each in others:
                if not each.cancel():
                    each.exception()  # waits
        if failed:
            raise min(failed, key=lambda one: one[0])[1]
