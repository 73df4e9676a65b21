"""How long a call may take from its start, and how large its answer may be.

A socket's timeout bounds each wait only: a server that sends a byte now and then is never late.
"""

from __future__ import annotations

import math
import socket
import time

import msgspec

MIB = 1 << 20


class Bound(msgspec.Struct, frozen=True):
    """The bound of an operation's calls."""

    seconds: float
    """From the start of the call to the end of its answer; of a stream, to the end of its headers.
    """
    size: int
    """Bytes of the answer's body; of a stream, of an error in its place."""


USUAL = Bound(60.0, 4 * MIB)
"""For operations whose answers are short."""


class AnswerTooLongError(ValueError):
    """An answer is longer than any of its operation."""

    def __init__(self, length: str, most: int) -> None:
        super().__init__(f"the answer has {length} bytes, and may have {most} at most")


def hurry(connection: socket.socket, until: float, timeout: float) -> None:
    """Let the next read or write wait for ``timeout``, but not beyond the instant ``until``.

    Raises TimeoutError if that is over. timeout: seconds; infinite for none.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer did not end in time")
    wait = min(left, timeout)
    # To set the timeout is a call of the system; it is needed for calls that are slow already.
    if (connection.gettimeout() or math.inf) != wait:
        connection.settimeout(wait)
