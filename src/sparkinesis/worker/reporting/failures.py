"""The errors of a worker, counted: one entry for all errors that the same lines raised."""

from __future__ import annotations

import hashlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from sparkinesis.status import Failure
from sparkinesis.stream.timing import MACHINE

MAX_FAILURES = 50
"""The number of different failures that are kept; the least recent one is dropped."""
MAX_SHARDS = 8
MAX_ERROR = 500
MAX_TRACEBACK = 8_000
"""The most characters of a traceback that is kept."""

_MAX_CHAIN = 10

_OF_OTHER_LOOPS = (
    "bound to a different event loop",
    "attached to a different loop",
    "Event loop is closed",
)
_ADVICE_ON_LOOPS = (
    "an object of asyncio works in the event loop in which it was first used: coroutines of all "
    "workers of a process share one, but asyncio.run() and run_async() have others. Make the "
    "object where it is used, such as in `initialize`"
)
_MAX_LINES = 200


def fingerprint(error: BaseException) -> str:
    """Return 12 hex digits: the same for errors of one type that the same lines raised.

    The message does not count, nor does the number of times that a line is in the traceback: a
    recursion is one failure at any depth, and so is an error object that is raised repeatedly.
    """
    digest = hashlib.blake2b(digest_size=6)
    for part in dict.fromkeys(_parts(each) for each in _chain(error)):
        digest.update(part.encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def merge(groups: Iterable[Iterable[Failure]]) -> tuple[Failure, ...]:
    """Merge the failures of several workers. Later groups count as later occurrences."""
    merged: dict[str, Failure] = {}
    for group in groups:
        for failure in group:
            before = merged.pop(failure.fingerprint, None)
            merged[failure.fingerprint] = failure if before is None else _add(before, failure)
    return tuple(merged.values())


class Failures:
    """The failures of one worker, as text, without error objects. For any thread.

    now_ms: the wall clock in epoch ms.
    """

    def __init__(self, now_ms: Callable[[], int] = MACHINE.wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._seen: dict[str, Failure] = {}
        """Failures by fingerprint, in order of the last occurrence."""

    def note(self, shard_id: str | None, what: str, error: BaseException) -> Failure:
        """Count an error, and return its failure so far, with count 1 for a new one.

        what: what failed, as logged. shard_id: None for a failure of the whole worker.
        """
        mark = fingerprint(error)
        shards = () if shard_id is None else (shard_id,)
        at = self._now_ms()
        now = Failure(mark, cut(what, MAX_ERROR), describe(error), "", 1, shards, at, at)
        with self._lock:
            before = self._seen.pop(mark, None)
            if before is None:
                now = replace(now, traceback=traceback_of(error))
                while len(self._seen) >= MAX_FAILURES:
                    del self._seen[next(iter(self._seen))]
            else:
                now = _add(before, now)
            self._seen[mark] = now
        return now

    def snapshot(self) -> tuple[Failure, ...]:
        """Return the failures in order of their last occurrences, the latest last."""
        with self._lock:
            return tuple(self._seen.values())


def describe(error: BaseException, limit: int = MAX_ERROR) -> str:
    """Return an error's type and message, shortened to ``limit`` characters, and advice if any."""
    name, message = type(error).__name__, _message_of(error)
    said = cut(f"{name}: {message}" if message else name, limit)
    if of_another_loop(error) and _ADVICE_ON_LOOPS not in message:
        said = f"{said} ({_ADVICE_ON_LOOPS})"
    return said


def of_another_loop(error: BaseException) -> RuntimeError | None:
    """Return the error, or its cause, by which an object of asyncio is not of this event loop.

    That is a mistake in the program, which every record meets. None: there is no such cause.
    """
    for one in _chain(error):
        if isinstance(one, RuntimeError):
            message = _message_of(one)
            if any(text in message for text in _OF_OTHER_LOOPS):
                return one
    return None


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return "<its message could not be made>"


def _add(before: Failure, after: Failure) -> Failure:
    shards = dict.fromkeys(before.shard_ids + after.shard_ids)
    return replace(
        after,
        traceback=before.traceback or after.traceback,
        count=before.count + after.count,
        shard_ids=tuple(shards)[:MAX_SHARDS],
        first_ms=min(before.first_ms, after.first_ms),
        last_ms=max(before.last_ms, after.last_ms),
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the first causes that its traceback shows: a chain may be circular."""
    todo = [error]
    for _ in range(_MAX_CHAIN):
        if not todo:
            return
        this = todo.pop(0)
        yield this
        if this.__cause__ is not None:
            todo.append(this.__cause__)
        elif this.__context__ is not None and not this.__suppress_context__:
            todo.append(this.__context__)
        if sys.version_info >= (3, 11) and isinstance(this, BaseExceptionGroup):  # noqa: F821
            todo.extend(this.exceptions[:_MAX_CHAIN])


def _parts(error: BaseException) -> str:
    lines: dict[str, None] = {}
    at = error.__traceback__
    while at is not None and len(lines) < _MAX_LINES:
        code = at.tb_frame.f_code
        name = code.co_filename.replace("\\", "/").rpartition("/")[2]
        lines[f"{name} {code.co_name} {at.tb_lineno}"] = None
        at = at.tb_next
    kind = type(error)
    return "\n".join([f"{kind.__module__}.{kind.__qualname__}", *lines, ""])


def traceback_of(error: BaseException) -> str:
    """Return the traceback as text, shortened to `MAX_TRACEBACK` characters."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - as above
        text = "<its traceback could not be made>"
    return cut(text, MAX_TRACEBACK)


def cut(text: str, limit: int) -> str:
    """Return the text, without its middle if it is too long: a traceback's ends say the most.

    Code points that cannot be encoded, such as half of a surrogate pair, are written as escapes.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    gap = " [...] "
    half = (limit - len(gap)) // 2
    return text[:half] + gap + text[-half:]
