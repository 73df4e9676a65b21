"""One budget per shard for all processes of a machine: its slots are eight bytes each of a file.

Spark runs a shard's tasks in any of its Python workers, which know nothing of each other. The file
says when a call may next be made, in seconds of `time.monotonic`, which all processes of a machine
share. That is no state of a query, which Spark's checkpoint alone has (P4): a file that is deleted
costs nobody more than a spacing.

Where no file can be had (no ``fcntl``, no directory that is this user's alone) or used (a full
disk), each process spaces its own calls.
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
from types import TracebackType

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.reading.budget import BudgetState, LocalBudgetState

try:
    import fcntl
except ImportError:  # Windows
    HAS_FILE_LOCKS = False
else:
    HAS_FILE_LOCKS = True

SLOTS = 65_536
"""Shard ids end in a number that counts up, so that only shards this far apart share a slot."""

_INSTANT = struct.Struct("=d")

_ONE_AT_A_TIME = threading.Lock()
"""File locks are the process's: its threads need this, and the kernel's search for deadlocks, which
knows no threads, must never see the process hold one lock and wait for another."""


def machine_budget_state(
    address: StreamAddress, shard_id: str, purpose: object, parent: Path | None = None
) -> BudgetState:
    """The slot of a shard that all processes of this user and machine share for one purpose.

    ``purpose`` tells what is spaced, by its `repr`. ``parent``: the directory for the directory of
    files; None: the one for temporary files.
    """
    # The same name is another stream in another account, which a role or a profile may lead to.
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
    """A descriptor of the file, never closed: closing one of a file's ends the process's locks."""
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
    """A slot in a file. What this process set holds even if the file fails."""

    def __init__(self, file: int, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._own = float("-inf")

    def __enter__(self) -> None:
        _ONE_AT_A_TIME.acquire()
        self._lock(fcntl.LOCK_EX)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock(fcntl.LOCK_UN)
        _ONE_AT_A_TIME.release()

    @property
    def free_at(self) -> float:
        try:
            shared: float = _INSTANT.unpack(os.pread(self._file, _INSTANT.size, self._offset))[0]
        except (OSError, struct.error):  # struct: nothing is written there yet
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
