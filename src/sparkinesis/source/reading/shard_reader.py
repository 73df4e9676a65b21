"""Reads one range of a shard in a Spark task, by GetRecords or by a subscription."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import stat
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from sparkinesis.source.options.checked_options import ReadOptions
from sparkinesis.source.reading.subscribed_cursor import (
    RangeSubscription,
    SubscribedCursor,
    SubscribeLimiter,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.subscription import OPERATION
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import Position, ShardRange
from sparkinesis.stream.reading.budget import BudgetState, LocalBudgetState, Pace, ShardBudget
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor


@functools.lru_cache(maxsize=4096)
def _budget(address: StreamAddress, shard_id: str, pace: Pace) -> ShardBudget:
    """Return a shard's budget, which all of Spark's Python workers on this machine share."""
    return ShardBudget(
        pace, new_state=lambda operation: machine_budget_state(address, shard_id, (operation, pace))
    )


@functools.lru_cache(maxsize=4096)
def _limiter(address: StreamAddress, shard_id: str, consumer_arn: str) -> SubscribeLimiter:
    """Return the machine's limiter of a consumer's subscriptions to a shard."""
    return SubscribeLimiter(machine_budget_state(address, shard_id, (OPERATION, consumer_arn)))


def read_records(
    options: ReadOptions,
    address: StreamAddress,
    shard_range: ShardRange,
    expected: int | None = None,
    consumer_arn: str | None = None,
) -> Iterator[Sequence[Record]]:
    """Yield the records of ``shard_range``, page by page. Runs on an executor.

    ``expected``: the approximate number of records, if known. ``consumer_arn``: the consumer to
    subscribe as, where a subscription is possible; None reads by GetRecords. Neither changes the
    records. Raises `DataLossError` and service errors.
    """
    keep_freed_memory()
    client = StreamClient(address)
    check = RetentionCheck(client, options.fail_on_data_loss)
    budget = _budget(address, shard_range.shard_id, options.pace)

    def poll(position: Position, inclusive: bool = True) -> ShardCursor:
        return ShardCursor(client, budget, shard_range.shard_id, position, inclusive=inclusive)

    with ExitStack() as ending:

        def subscribe(position: Position) -> SubscribedCursor:
            assert consumer_arn is not None
            limiter = SubscribeLimiter(None)
            if options.pace.calls_per_second > 0:
                limiter = _limiter(address, shard_range.shard_id, consumer_arn)
            subscription = RangeSubscription(client, limiter, consumer_arn, shard_range.shard_id)
            # Runs before the pages close, as a thread may wait for an event.
            ending.callback(subscription.stop)
            return SubscribedCursor(subscription, position, end=shard_range.end, poll=poll)

        open_cursor = poll if consumer_arn is None else subscribe
        most = options.max_records_per_fetch
        pages = read_range(open_cursor, shard_range, check, most, expected)
        # `yield from` would close the pages first, which may wait for an event of the subscription.
        for records in ending.enter_context(closing(pages)):  # noqa: UP028
            yield records


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)."""

KEPT = 64 << 20
"""The bytes that may stay free at the end of a heap."""

LARGEST = 32 << 20
"""The largest block that a heap holds; glibc's own limit for a threshold that adapts itself."""

_USERS_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which a user tunes glibc."""


@functools.cache
def keep_freed_memory() -> bool:
    """Keep up to `KEPT` bytes of freed memory in this process; return True if that is possible.

    Only glibc can. The user's own settings of glibc stay as they are.
    """
    if any(name in os.environ for name in _USERS_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST))


try:
    import fcntl
except ImportError:  # Windows
    HAS_FILE_LOCKS = False
else:
    HAS_FILE_LOCKS = True

# Spark runs a shard's tasks in any of its Python workers, which share no memory. So their budget is
# in a file with a slot per shard: eight bytes, which hold the instant of the next call, in seconds
# of `time.monotonic`, which all processes of a machine share. The file is no state of a query,
# which only Spark's checkpoint has (P4): if the file is deleted, calls are at most one spacing too
# early.
#
# If no file is available (no ``fcntl``, no directory with access for this user only) or writable (a
# full disk), each process spaces its own calls.
SLOTS = 65_536
"""The slots of a file. Shard ids end in a counter, so only shards this far apart share a slot."""

_INSTANT = struct.Struct("=d")

_ONE_AT_A_TIME = threading.Lock()
"""File locks belong to a process, so its threads need this lock. And the kernel's detection of
deadlocks ignores threads: the process must never wait for a file lock while it holds another."""


def machine_budget_state(
    address: StreamAddress, shard_id: str, purpose: object, parent: Path | None = None
) -> BudgetState:
    """Return the state that all processes of this user and machine share for one purpose.

    purpose: identifies the kind of calls, by its `repr`. parent: the directory in which to create
    the directory of files; None for the system's temporary directory.
    """
    # The stream may have a namesake in another account, which a role or a profile selects.
    account = (address.credentials.profile, address.credentials.role_arn)
    stream = (address.name, address.arn, address.region, address.endpoint, *account)
    name = hashlib.sha256(repr((stream, purpose)).encode()).hexdigest()[:32]
    file = _open(parent or Path(tempfile.gettempdir()), name)
    return (
        LocalBudgetState()
        if file is None
        else _FileBudgetState(file, _number(shard_id) * _INSTANT.size)
    )


def _number(shard_id: str) -> int:
    end = shard_id.rpartition("-")[2]
    return (int(end) if end.isdecimal() else zlib.crc32(shard_id.encode())) % SLOTS


@functools.cache
def _open(parent: Path, name: str) -> int | None:
    """Return a descriptor that is never closed: closing one would release the process's locks."""
    if not HAS_FILE_LOCKS:
        return None
    path = parent / f"sparkinesis-budgets-{os.getuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(directory)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        return os.open(name, flags, 0o600, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)


class _FileBudgetState:
    """A budget's state in a file's slot. Keeps this process's instant if the file fails."""

    def __init__(self, file: int, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._own = float("-inf")

    def __enter__(self) -> None:
        _ONE_AT_A_TIME.acquire()
        self._lock(fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._lock(fcntl.LOCK_UN)
        _ONE_AT_A_TIME.release()

    @property
    def free_at(self) -> float:
        try:
            shared: float = _INSTANT.unpack(os.pread(self._file, _INSTANT.size, self._offset))[0]
        except (OSError, struct.error):  # struct: the slot is not written yet
            return self._own
        return max(self._own, shared)

    @free_at.setter
    def free_at(self, instant: float) -> None:
        self._own = instant
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _INSTANT.pack(instant), self._offset)

    def _lock(self, how: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file, how, _INSTANT.size, self._offset)
