"""A shard's budget that all processes of a machine share, in a file with a slot per shard.

Spark runs a shard's tasks in any of its Python workers, which share no memory. A slot of
eight bytes holds the instant of the next call, in seconds of `time.monotonic`, which all processes
of a machine share. The file is no state of a query, which only Spark's checkpoint has (P4): if the
file is deleted, calls are at most one spacing too early.

If no file is available (no ``fcntl``, no directory with access for this user only) or writable (a
full disk), each process spaces its own calls.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import struct
import tempfile
import threading
import zlib
from pathlib import Path

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.reading.budget import BudgetState, LocalBudgetState

try:
    import fcntl
except ImportError:  # Windows
    HAS_FILE_LOCKS = False
else:
    HAS_FILE_LOCKS = True

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
