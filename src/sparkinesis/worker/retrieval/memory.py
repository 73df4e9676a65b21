"""A budget of memory for the records that a process holds ahead of its record processors.

Each shard has two accounts: one for pages that are fetched ahead, and one for the batch that its
record processor is at. An account holds bytes of the budget from before they are needed (those of a
page from before it is asked for) until they are free again.

- An account may hold half of what the others leave. So busy shards come to hold the same amount, a
  busy shard among quiet ones may hold much, and something is always left for the next shard.
- An account that holds nothing gets its floor at once, whatever the others hold. So no shard waits
  for another shard's record processor.

Only floors exceed the budget, and what cannot be divided: one record, or one event of enhanced
fan-out, of each shard. The floors of all accounts together are at most the limit.
"""

from __future__ import annotations

import functools
import os
import threading

_LARGEST_FLOOR = 1_048_576
_FEW_ACCOUNTS = 64


def floor_of(limit: int, accounts: int) -> int:
    """The bytes that each of so many accounts may hold in any case.

    1 MiB, but less where the limit is small, or the accounts are many.
    """
    return max(1, min(_LARGEST_FLOOR, limit // max(_FEW_ACCOUNTS, accounts)))


def allowance(limit: int, others: int) -> int:
    """The bytes that an account may hold while the others hold so many: half of what they leave."""
    return max(0, (limit - others) // 2)


class Hold:
    """Bytes of an account: asked for, then granted, then given back. For any thread."""

    def __init__(self, account: Account, want: int, least: int) -> None:
        self._account = account
        self._budget = account._budget
        self._want = want
        self._least = least
        self._granted = 0
        self._is_decided = False
        self._is_over = False
        self._decided: threading.Event | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds now."""
        return self._granted

    def wait(self) -> int:
        """Wait for the grant, and return its bytes; 0 if it was cancelled before."""
        with self._budget._lock:
            if self._is_decided:
                return self._granted
            decided = self._decided = threading.Event()
        decided.wait()
        return self._granted

    def cancel(self) -> None:
        """Ask no more; without effect on what is granted."""
        with self._budget._lock:
            self._budget._cancel(self)

    def resize(self, size: int) -> int:
        """Hold ``size`` bytes from now on, or as many of them as the account may hold.

        Returns how many. They are never fewer than ``size`` where that is no more than was granted.
        """
        with self._budget._lock:
            return self._budget._resize(self, size, force=False)

    def force(self, size: int) -> None:
        """Hold ``size`` bytes from now on, for what is there and cannot be divided."""
        with self._budget._lock:
            self._budget._resize(self, size, force=True)

    def release(self) -> None:
        """Give all of it back; also what was asked for, and a second time."""
        with self._budget._lock:
            self._budget._cancel(self)
            self._budget._resize(self, 0, force=False)
            self._is_over = True


class Account:
    """What one reader holds of a budget; counts from its first `ask` until `close`."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self._is_open = False
        self._is_closed = False

    @property
    def held(self) -> int:
        """The bytes that it holds now."""
        return self._held

    def ask(self, want: int, least: int | None = None) -> Hold:
        """Ask for ``want`` bytes more; `Hold.wait` returns when some of them are granted.

        least: what is of use; None: a part of the floor. An account that holds nothing is granted
        its floor at once, or as much of it as it wants.
        """
        with self._budget._lock:
            return self._budget._ask(self, max(1, want), least)

    def close(self) -> None:
        """Ask for no more, and wait for no more. What is held stays so until it is released."""
        with self._budget._lock:
            self._budget._close(self)


class MemoryBudget:
    """``limit`` bytes, shared by accounts. For any thread; the one lock is here."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._accounts = 0
        self._empty = 0
        """Open accounts that hold nothing: a floor is kept for each."""
        self._held = 0
        self._most_held = 0
        self._waiting: list[Hold] = []

    @property
    def held(self) -> int:
        """The bytes that all accounts hold now."""
        return self._held

    @property
    def most_held(self) -> int:
        """The most bytes that all accounts held at one time."""
        return self._most_held

    @property
    def floor(self) -> int:
        """The bytes that each account may hold in any case."""
        return floor_of(self.limit, self._accounts)

    @property
    def accounts(self) -> int:
        """How many accounts are open."""
        return self._accounts

    def account(self) -> Account:
        """A new account, which holds nothing."""
        return Account(self)

    # --- within the lock

    def _ask(self, account: Account, want: int, least: int | None) -> Hold:
        if not account._is_open and not account._is_closed:
            account._is_open = True
            self._accounts += 1
            self._empty += account._held == 0
        least = max(1, self.floor // 4) if least is None else least
        hold = Hold(account, want, min(want, least))
        if account._is_closed:
            hold._is_decided = hold._is_over = True
        elif not self._grant(hold):
            self._waiting.append(hold)
        return hold

    def _grant(self, hold: Hold) -> bool:
        """Grant what there is for it, if that is of use."""
        account, want = hold._account, hold._want
        size = min(want, self._room(account))
        if not account._held:
            size = max(size, min(want, self.floor))
        elif size < hold._least:
            return False
        hold._is_decided = True
        self._change(hold, size)
        if hold._decided is not None:
            hold._decided.set()
        return True

    def _room(self, account: Account) -> int:
        """The bytes that the account may hold beyond those that it holds."""
        empty = self._empty - (account._is_open and account._held == 0)
        others = self._held - account._held + empty * self.floor
        return max(0, allowance(self.limit, others) - account._held)

    def _resize(self, hold: Hold, size: int, *, force: bool) -> int:
        if hold._is_over:
            return size
        if not force:
            size = min(size, hold._granted + self._room(hold._account))
        has_freed = size < hold._granted
        self._change(hold, size)
        if has_freed:
            self._serve()
        return size

    def _change(self, hold: Hold, size: int) -> None:
        account = hold._account
        before = account._held
        account._held += size - hold._granted
        self._held += size - hold._granted
        self._most_held = max(self._most_held, self._held)
        hold._granted = size
        if account._is_open:
            self._empty += (account._held == 0) - (before == 0)

    def _serve(self) -> None:
        """Grant those who wait what has become free; first those who hold the least."""
        if not self._waiting:
            return
        free = self.limit - self._held - self._empty * self.floor
        for hold in sorted(self._waiting, key=lambda waiting: waiting._account._held):
            # Nobody may hold more than what is free, and who comes later holds more.
            if hold._account._held > max(0, free):
                break
            if self._grant(hold):
                self._waiting.remove(hold)

    def _cancel(self, hold: Hold) -> None:
        if hold._is_decided:
            return
        self._waiting.remove(hold)
        hold._is_decided = hold._is_over = True
        if hold._decided is not None:
            hold._decided.set()

    def _close(self, account: Account) -> None:
        for hold in [each for each in self._waiting if each._account is account]:
            self._cancel(hold)
        if account._is_open:
            account._is_open = False
            self._accounts -= 1
            self._empty -= account._held == 0
        account._is_closed = True
        self._serve()


def budget_of_process(limit: int) -> MemoryBudget:
    """The budget that all workers of this process with the same limit share."""
    return _budget(os.getpid(), limit)


@functools.cache
def _budget(_: int, limit: int) -> MemoryBudget:
    """By process id: a lock that is held while a process forks is never released in the child."""
    return MemoryBudget(limit)
