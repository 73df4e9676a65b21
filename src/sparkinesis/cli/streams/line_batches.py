"""Lines of an input that may pause: in batches, which never wait for the next line."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

_CHUNKS_AHEAD = 16
"""The most chunks that are read before the lines of earlier ones are used."""
IDLE = 0.05
"""Seconds without input after which the lines so far should go on their way."""
LONGEST_WAIT = 0.5
"""Seconds after which they should even if more input comes all the time."""


def line_batches(
    read: Callable[[], bytes], longest: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Sequence[bytes]]:
    """Yield lines, without their ends; an empty batch where the ones so far should not wait longer.

    read: returns some bytes, and none at the end of the input; an own thread calls it. longest:
    a longer line is yielded in parts, so that an input without line ends is not kept in memory.
    Raises the error of ``read``.
    """
    chunks: queue.Queue[bytes | OSError] = queue.Queue(_CHUNKS_AHEAD)
    threading.Thread(target=_gather, args=(read, chunks), name="lines", daemon=True).start()
    rest = b""
    waits_since: float | None = None
    while True:
        if waits_since is not None and clock() - waits_since >= LONGEST_WAIT:
            waits_since = None
            yield []
        try:
            chunk = chunks.get(timeout=None if waits_since is None else IDLE)
        except queue.Empty:
            waits_since = None
            yield []
            continue
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > longest:
            lines.append(rest)
            rest = b""
        if lines:
            waits_since = clock() if waits_since is None else waits_since
            yield lines
    if rest:
        yield [rest]


def _gather(read: Callable[[], bytes], chunks: queue.Queue[bytes | OSError]) -> None:
    try:
        while chunk := read():
            chunks.put(chunk)
        chunks.put(b"")
    except OSError as error:
        chunks.put(error)
