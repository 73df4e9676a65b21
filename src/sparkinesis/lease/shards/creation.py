"""Creates many leases, several at once, and no lease before those of its parents."""

# One call after the other, 100,000 leases take 17 minutes at 10 ms a call. What must hold:
#
# - No lease exists before those of its parents, also after a crash in between: the next start takes
#   a leased child as the sign that its parents are read (`by_birth`). So the leases are created a
#   generation at a time.
# - Each write has its own condition, so that workers may create the same leases at the same time.
#   PutItem has one wherever a lease table is; INSERT in batches needs a permission of its own, and
#   servers that know it.
# - A table that cannot take the writes is not pressed, since the renewals of other workers need it
#   too. A helper makes each call once: after any error it hands its lease back and ends. The thread
#   that leads retries its calls, raises their errors, and starts another helper after each call. So
#   a throttled table is soon left to one caller, as if there were no helpers.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from sparkinesis.lease.lease import Lease
from sparkinesis.metrics.health.liveness import helping
from sparkinesis.stream.calls.retry import Backoff

MOST_HELPERS = 47
"""With these, 10 ms a call are 4,800 calls a second: more than one core sends and reads. The client
keeps 64 connections."""
_LEASES_OF_A_HELPER = 16
"""The leases left to create for each thread, from which on another one is worth its start."""
_ONCE = Backoff(give_up_after=-1.0)
"""Gives up before a retry."""

Create: TypeAlias = Callable[[Lease, Backoff | None], object]
"""Creates a lease unless it exists. It retries by the given `Backoff`; None: by the table's."""
IsLeaving: TypeAlias = Callable[[], bool]
"""Returns True once the worker is to end: those of many leases that are left are not created."""


def is_never_leaving() -> bool:
    return False


def create_leases(
    leases: Iterable[Lease], create: Create, is_leaving: IsLeaving = is_never_leaving
) -> None:
    """Create leases, given parents before children. ``create`` is called by several threads.

    Raises what ``create`` raises in this thread, once all calls have returned.
    """
    for part in generations(leases):
        if not _Crew(part, create, is_leaving).run():
            return


def generations(leases: Iterable[Lease]) -> Iterator[list[Lease]]:
    """Divide leases, parents before children, into parts without a lease and its parent. Pure."""
    part: list[Lease] = []
    ids: set[str] = set()
    for lease in leases:
        if not ids.isdisjoint(lease.parent_ids):
            yield part
            part, ids = [], set()
        part.append(lease)
        ids.add(lease.shard_id)
    if part:
        yield part


class _Crew:
    """Creates the leases of one generation, in any order."""

    def __init__(self, leases: Iterable[Lease], create: Create, is_leaving: IsLeaving) -> None:
        self._left = deque(leases)
        self._create = create
        self._is_leaving = is_leaving
        self._helpers: set[object] = set()
        """A mark for each helper that runs."""

    def run(self) -> bool:
        """Return False if the worker is to end, and leases are left."""
        goes_on = True
        while self._left and goes_on:  # again, if a helper has handed back a lease after the last
            goes_on = False
            with ThreadPoolExecutor(MOST_HELPERS, "create-lease") as pool:
                try:
                    goes_on = self._lead(pool)
                finally:
                    if not goes_on:
                        self._left.clear()
        return goes_on

    def _lead(self, pool: ThreadPoolExecutor) -> bool:
        while (lease := self._next()) is not None:
            self._create(lease, None)
            useful = min(MOST_HELPERS, len(self._left) // _LEASES_OF_A_HELPER)
            if useful and self._is_leaving():
                return False
            if len(self._helpers) < useful:
                mark = object()
                self._helpers.add(mark)
                pool.submit(helping(self._help), mark)
        return True

    def _help(self, mark: object) -> None:
        while (lease := self._next()) is not None:
            try:
                self._create(lease, _ONCE)
            except Exception:  # noqa: BLE001 - if it lasts, the thread that leads meets it
                self._left.append(lease)
                break
        self._helpers.discard(mark)

    def _next(self) -> Lease | None:
        try:
            return self._left.popleft()
        except IndexError:
            return None
