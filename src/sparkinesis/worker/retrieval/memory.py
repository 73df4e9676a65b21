"""The memory budget for records that a process holds for its record processors, and their sizes.

The estimates are measured with CPython 3.10 to 3.12 on 64 bits; tests compare them with what is
allocated. A record's size is that of its data and its partition key.
"""

# Limits for each shard alone let a worker of 200 shards with slow record processors take some
# gigabytes. So all shards of a process share one budget. Each has two accounts: one for pages that
# are fetched ahead, and one for the batches that its record processor is given. Memory is reserved
# before it is used (that of a page, before the page is requested) and released when it is free.
#
# - An account may hold half of what the others leave. So busy shards come to hold equal amounts, a
#   busy shard among quiet ones may hold much, and something is always left for the next shard.
# - An account that holds nothing gets its floor at once, whatever the others hold. So no shard
#   waits for another shard's record processor, which may hang; and the memory of a batch is granted
#   at once, unless other batches of the same shard are in use.
#
# Only floors can exceed the budget, and data that cannot be divided: one record, or one event of
# enhanced fan-out, for each shard. The floors of all accounts together are at most the limit.
#
# Who waits is woken within the lock (`on_decided`), which therefore must return at once and not use
# the budget: it wakes the fetcher's work, and no more.

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence

from sparkinesis.stream.kpl.objects import UnpackedSize
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Record, size_of
from sparkinesis.stream.reading.budget import LARGEST_PAGE

_LARGEST_FLOOR = 1_048_576
_FEW_ACCOUNTS = 64


def floor_of(limit: int, accounts: int) -> int:
    """Return the bytes that each of the accounts may hold in any case.

    1 MiB; less if the limit is small or the accounts are many.
    """
    return max(1, min(_LARGEST_FLOOR, limit // max(_FEW_ACCOUNTS, accounts)))


class Hold:
    """A reservation of an account's bytes: requested, granted, released. For any thread."""

    def __init__(
        self, account: Account, want: int, least: int, on_decided: Callable[[], None]
    ) -> None:
        self._account = account
        self._budget = account._budget
        self._want = want
        self._least = least
        self.size = 0
        """The bytes that it holds now."""
        self.is_decided = False
        """True once it was granted or cancelled."""
        self._is_over = False
        self._on_decided = on_decided

    def cancel(self) -> None:
        """Cancel the request; has no effect once it is granted."""
        with self._budget._lock:
            self._budget._cancel(self)

    def resize(self, size: int) -> int:
        """Hold ``size`` bytes from now on, or as many of them as the account may hold.

        Returns the number of bytes: never less than ``size`` if that does not exceed the grant.
        """
        with self._budget._lock:
            return self._budget._resize(self, size, force=False)

    def force(self, size: int) -> None:
        """Hold ``size`` bytes from now on, for data that exists and cannot be divided."""
        with self._budget._lock:
            self._budget._resize(self, size, force=True)

    def release(self) -> None:
        """Release the bytes, or cancel the request. Calling it twice is harmless."""
        with self._budget._lock:
            self._budget._cancel(self)
            self._budget._resize(self, 0, force=False)
            self._is_over = True


class Account:
    """One reader's share of a budget; counts as open from its first `ask` until `close`."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.held = 0
        """The bytes that it holds now."""
        self._is_open = False
        self._is_closed = False

    def ask(
        self, want: int, least: int | None = None, on_decided: Callable[[], None] = lambda: None
    ) -> Hold:
        """Request ``want`` more bytes; the hold is decided when some of them are granted.

        least: the fewest bytes that are useful; None: a part of the floor. An account that holds
        nothing is granted its floor at once, or the part of it that it requests.
        on_decided: called if the request is granted or cancelled later; must return at once, and
        must not use the budget.
        """
        budget = self._budget
        with budget._lock:
            if not self._is_open and not self._is_closed:
                self._is_open = True
                budget._count_accounts(budget.accounts + 1)
                budget._empty += self.held == 0
            least = max(1, budget.floor // 4) if least is None else least
            want = max(1, want)
            hold = Hold(self, want, min(want, least), on_decided)
            if self._is_closed:
                hold.is_decided = hold._is_over = True
            elif not budget._grant(hold):
                budget._waiting.append(hold)
            return hold

    def close(self) -> None:
        """Cancel all requests, and grant no more. Bytes stay held until they are released."""
        budget = self._budget
        with budget._lock:
            for hold in [each for each in budget._waiting if each._account is self]:
                budget._cancel(hold)
            if self._is_open:
                self._is_open = False
                budget._count_accounts(budget.accounts - 1)
                budget._empty -= self.held == 0
            self._is_closed = True
            budget._serve()


class MemoryBudget:
    """A budget of ``limit`` bytes that accounts share. For any thread; the only lock is here."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self.accounts = 0
        """The number of open accounts."""
        self.floor = floor_of(limit, 0)
        """The bytes that each account may hold in any case."""
        self._empty = 0
        """The number of open accounts that hold nothing: a floor is kept for each."""
        self.held = 0
        """The bytes that all accounts hold now."""
        self.most_held = 0
        """The most bytes that all accounts held at one time."""
        self._waiting: list[Hold] = []

    def account(self) -> Account:
        """Return a new account, which holds nothing. The simulation watches those that it makes."""
        return Account(self)

    # --- within the lock

    def _count_accounts(self, accounts: int) -> None:
        self.accounts = accounts
        self.floor = floor_of(self.limit, accounts)

    def _grant(self, hold: Hold) -> bool:
        """Grant the bytes that are available, if they are enough to be useful."""
        account, want = hold._account, hold._want
        size = min(want, self._room(account))
        if not account.held:
            size = max(size, min(want, self.floor))
        elif size < hold._least:
            return False
        hold.is_decided = True
        self._change(hold, size)
        return True

    def _room(self, account: Account) -> int:
        """Return the bytes that the account may hold in addition: half of what others leave."""
        empty = self._empty - (account._is_open and account.held == 0)
        others = self.held - account.held + empty * self.floor
        return max(0, (self.limit - others) // 2 - account.held)

    def _resize(self, hold: Hold, size: int, *, force: bool) -> int:
        if hold._is_over:
            return size
        if not force:
            size = min(size, hold.size + self._room(hold._account))
        has_freed = size < hold.size
        self._change(hold, size)
        if has_freed and self._waiting:
            self._serve()
        return size

    def _change(self, hold: Hold, size: int) -> None:
        account = hold._account
        before = account.held
        account.held += size - hold.size
        self.held += size - hold.size
        self.most_held = max(self.most_held, self.held)
        hold.size = size
        if account._is_open:
            self._empty += (account.held == 0) - (before == 0)

    def _serve(self) -> None:
        """Grant free bytes to waiting requests; accounts that hold the least come first."""
        free = self.limit - self.held - self._empty * self.floor
        for hold in sorted(self._waiting, key=lambda waiting: waiting._account.held):
            # No account may hold more than what is free, and the next ones hold more.
            if hold._account.held > max(0, free):
                break
            if self._grant(hold):
                self._waiting.remove(hold)
                hold._on_decided()

    def _cancel(self, hold: Hold) -> None:
        if hold.is_decided:
            return
        self._waiting.remove(hold)
        hold.is_decided = hold._is_over = True
        hold._on_decided()


def budget_of_process(limit: int) -> MemoryBudget:
    """Return the budget that all workers of this process with the same limit share."""
    return _budget(os.getpid(), limit)


@functools.cache
def _budget(_: int, limit: int) -> MemoryBudget:
    """Cached by process id: a lock that is held during a fork is never released in the child."""
    return MemoryBudget(limit)


RECORD_OVERHEAD = 280
"""Bytes of a decoded record besides its size: five objects, one of them the sequence number."""

_RESPONSE_FACTOR = 3
"""The memory of an answer while it is received, as a multiple of its records' size: the records are
there as JSON, in base64, once in pieces and once whole, and then once more decoded."""

LARGEST_RECORD = 1_048_576
"""Bytes: the assumed size of a record whose size is not known. Larger ones are rare."""

_COLUMNS_OVERHEAD = 130
"""Bytes of a user record in Arrow columns besides its size: the names of stream and shard, the
sequence number, offsets."""

_PLAIN_OBJECT = 90
"""Bytes of a record's object in a batch, if it was not aggregated: it shares data and keys."""

_UNPACKED_OBJECT = 160
"""Bytes of the object of an aggregate's user record besides its size."""

_ROW_OVERHEAD = RECORD_OVERHEAD + _PLAIN_OBJECT + _COLUMNS_OVERHEAD
"""Bytes of a user record in a batch besides twice its size, if it was not aggregated."""

_UNPACKED_OVERHEAD = _UNPACKED_OBJECT + _COLUMNS_OVERHEAD
"""The same if it was."""

FIRST_EXPANSION = 14.0
"""The memory of an aggregated record's user records in a batch, as a multiple of its size, until it
is measured. User records of 20 bytes take that much."""


def response_memory(size: int, records: int) -> int:
    """Return the memory of an answer or event of this size while it is received."""
    return _RESPONSE_FACTOR * size + RECORD_OVERHEAD * records


WHOLE_PAGE = response_memory(LARGEST_PAGE, MAX_RECORDS_PER_CALL)
"""The memory of the largest GetRecords answer while it is received."""


def page_memory(fetched: Fetched) -> int:
    """Return the memory of a decoded page."""
    return fetched.size + RECORD_OVERHEAD * len(fetched.page.records)


def records_within(fetched: Fetched, room: int) -> int:
    """Return the number of a page's records that fit into ``room`` bytes; at least one."""
    return _within([_size(record) + RECORD_OVERHEAD for record in fetched.page.records], room)


def batch_memory(fetched: Fetched, aggregates: Sequence[Record], unpacked: UnpackedSize) -> int:
    """Return the memory of the batch of a page, with Arrow columns and Python objects.

    unpacked: the estimate of the user records of ``aggregates``, which are those of the page.

    A processor that uses one of the two has only that, and the packed records until the other is
    made, but this is not known before. Packed records and columns are each of the records'
    size, and so are the objects of unpacked ones.
    """
    plain = len(fetched.page.records) - len(aggregates)
    return 2 * fetched.size + _ROW_OVERHEAD * plain + _beside(unpacked)


def _beside(unpacked: UnpackedSize) -> int:
    """Return the memory of aggregates in a batch besides twice their size."""
    return _UNPACKED_OVERHEAD * unpacked.rows + unpacked.keys


def estimate_batch_memory(fetched: Fetched, aggregates: Sequence[Record], expansion: float) -> int:
    """Estimate the memory of the batch of a page, before its aggregates are opened.

    expansion: the memory of an aggregated record's user records, as a multiple of its size.
    """
    aggregated = size_of(aggregates)
    others = max(0, fetched.size - aggregated)
    return 2 * others + _ROW_OVERHEAD * len(fetched.page.records) + round(expansion * aggregated)


def batch_records_within(
    records: Sequence[Record], aggregates: Sequence[Record], room: int, expansion: float
) -> int:
    """Return the number of records whose batch fits into ``room`` bytes; at least one."""
    unpacked = {id(record) for record in aggregates}
    sizes = [
        round(_size(record) * expansion)
        if id(record) in unpacked
        else 2 * _size(record) + _ROW_OVERHEAD
        for record in records
    ]
    return _within(sizes, room)


def measure_expansion(aggregates: Sequence[Record], unpacked: UnpackedSize) -> float:
    """Return the expansion of aggregates whose user records are estimated as ``unpacked``."""
    return 2.0 + _beside(unpacked) / size_of(aggregates)


def _size(record: Record) -> int:
    return len(record.data) + len(record.partition_key or "")


def _within(sizes: Sequence[int], room: int) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > room:
            return max(1, count)
    return len(sizes)
