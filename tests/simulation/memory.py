"""The memory of simulated processes: what their budgets gave, and whether they got it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkinesis.worker.retrieval.memory import Account, Hold, MemoryBudget
from tests.simulation.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from tests.simulation.world import World

_CALL_ENDS_WITHIN = 60.0
"""Seconds within which a cancelled fetch ends, with its retries."""

LARGEST_BATCH = 12_288
"""Bytes of memory of one simulated record at most, with its user records, which is not divided; and
of the moment in which a page is there that is larger than the page before let expect."""


class WatchedBudget(MemoryBudget):
    """A process's budget, which notes who waits, and what is not given back."""

    def __init__(self, limit: int, process: Process, notes: Notes) -> None:
        super().__init__(limit)
        self.process = process
        self.most_accounts = 0
        self.largest_event = 0
        """The most bytes that an event of enhanced fan-out took, which is not divided."""
        self._notes = notes

    def account(self) -> Account:
        return _WatchedAccount(self, self._notes)

    def _change(self, hold: Hold, size: int) -> None:
        super()._change(hold, size)
        if isinstance(hold._account, _WatchedAccount) and hold._account.is_of_events:
            self.largest_event = max(self.largest_event, size)


class _WatchedAccount(Account):
    def __init__(self, budget: WatchedBudget, notes: Notes) -> None:
        super().__init__(budget)
        self._of, self._notes = budget, notes
        self.is_of_events = False

    def ask(
        self, want: int, least: int | None = None, on_decided: Callable[[], None] = lambda: None
    ) -> Hold:
        self.is_of_events = least is not None
        hold = super().ask(want, least, on_decided)
        self._of.most_accounts = max(self._of.most_accounts, self._of.accounts)
        if not self.held and not hold.size and not self._is_closed:
            self._notes.starved.append(f"{self._of.process} at {self._notes.scheduler.now:.1f}")
        return hold

    def close(self) -> None:
        super().close()
        self._notes.closed.append((self._notes.scheduler.now, self._of, self))


@dataclass
class Notes:
    """The observations of all processes of a world."""

    scheduler: Scheduler
    budgets: list[WatchedBudget] = field(default_factory=list)
    starved: list[str] = field(default_factory=list)
    closed: list[tuple[float, WatchedBudget, Account]] = field(default_factory=list)
    """The accounts of shards that were left, with the times."""
    kept: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Checks that the memory of shards that were left a while ago was given back.

        All faults must have ended, and no process may be paused.
        """
        now = self.scheduler.now
        for left_at, budget, account in self.closed:
            if account.held and budget.process.is_alive and now - left_at > _CALL_ENDS_WITHIN:
                what = f"{account.held} bytes of a shard that it left at {left_at:.1f}"
                self.kept.append(f"{budget.process} keeps {what}")

    def budget(self, limit: int, process: Process) -> WatchedBudget:
        """A new one, of a process that begins."""
        self.budgets.append(WatchedBudget(limit, process, self))
        return self.budgets[-1]


def memory_is_within_its_budget(world: World) -> Iterator[str]:
    """A process holds its budget, and beyond it a floor and a record for each account at most.

    By enhanced fan-out, an event in place of a record: one may have all that was put for hours.
    """
    for budget in world.fleet.memory.budgets:
        undivided = max(LARGEST_BATCH, budget.largest_event)
        most = budget.limit + budget.most_accounts * (budget.limit // 64 + undivided)
        if budget.most_held > most:
            yield f"{budget.process} held {budget.most_held} bytes with a budget of {budget.limit}"


def memory_is_given_back(world: World) -> Iterator[str]:
    """The memory of a shard is given back soon after its worker has left the shard."""
    yield from world.fleet.memory.kept


def empty_shards_get_memory_at_once(world: World) -> Iterator[str]:
    """A shard that holds nothing is granted the minimum at once, whatever others hold."""
    for starved in world.fleet.memory.starved:
        yield f"an empty shard has to wait for memory: {starved}"
