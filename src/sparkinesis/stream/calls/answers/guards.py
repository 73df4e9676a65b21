"""Guards against answers that come too late, are too long, have another form, or do not end.

What they find is an error after which the call is made again, as after a broken connection; only a
listing without end is not tried again.
"""

# No server is trusted to keep to the API: a proxy answers with a page of its own, an emulator in
# another form, and a machine that breaks down sends a byte now and then. Each must become an error
# within a bounded time and a bounded memory, and a slow line must not be taken for one of them.
#
# - Time: the timeout of a socket bounds each wait only. A byte each second held a thread for ever,
#   so that a call has a bound from its start, too (`Bound.seconds`), and `hurry` cuts the last wait
#   short. The bounds are generous (`sparkinesis.stream.calls.operations`): the service's limits,
#   over a line of half a Mbit/s.
# - Size: a body without end took all memory. `Bound.size` is that of the operation, 32 MiB for
#   GetRecords and 4 MiB for most. Headers and trailers have bounds where they are read, in bytes
#   and lines: a flood of them fits into any time.
# - Form: `understood` makes the call *and* takes the answer apart, because a missing field shows
#   only where it is read. Its one error counts as "no answer came", and so as "the call may have
#   taken effect": a lease's row is read again before its write is taken for refused. What must not
#   be tried again is therefore raised outside of it.
# - Number: a token that comes a second time would list for ever (`pages`).

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from botocore.exceptions import HTTPClientError

from sparkinesis.errors import ServiceError

_T = TypeVar("_T")
_Client = TypeVar("_Client")

MIB = 1 << 20


class Bound(msgspec.Struct, frozen=True):
    """How long a call of an operation may take from its start, and how large its answer may be."""

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


_SHOWN = 300
"""The most characters of an error to show: it may quote the answer."""


class UnreadError(ValueError):
    """An answer is no CBOR, no answer of its operation, or one in a form that is not read."""


class MisunderstoodError(HTTPClientError):  # type: ignore[misc]
    """An answer does not have the form of its operation: a proxy's, or another server's.

    The call may be made again as if no answer had come, and it may have taken effect.
    """

    fmt = "the answer is not understood: {error}"


_NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    ServiceError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""The errors of decoders, botocore's and ours, and of code that takes an answer apart."""


def understood(call: Callable[[_Client], _T], client: _Client) -> _T:
    """Make a call and take its answer apart. Raises botocore's errors, `MisunderstoodError` too."""
    try:
        return call(client)
    except _NOT_UNDERSTOOD as error:
        shown = str(error) if isinstance(error, ServiceError) else repr(error)
        raise MisunderstoodError(error=shown[:_SHOWN]) from error


def text(value: object) -> str:
    """Return a text of an answer. Raises TypeError for anything else."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r:.60} is no text")


def decode_object(body: bytes | bytearray, decoder: msgspec.json.Decoder[Any]) -> dict[str, Any]:
    """Decode an answer's body; an empty one is an empty object.

    Raises `MisunderstoodError`, which shows how the body starts.
    """
    try:
        found: dict[str, Any] = decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        start = bytes(body[:60])
        raise MisunderstoodError(
            error=f"it is no JSON object of this operation, and starts with {start!r} ({error})"
        ) from error
    return found


MOST_PAGES = 1_000
"""A page has 1,000 shards or 1 MB of rows: no stream and no lease table has as many pages."""


def pages(
    what: str, token: str, ask: Callable[[Any], Mapping[str, Any]], most: int = MOST_PAGES
) -> Iterator[Mapping[str, Any]]:
    """Yield the answers of a listing: those that ``ask`` returns, given the last answer's token.

    what: the operation and its subject, for the error. token: the field of an answer with the token
    of the next page; the first call is given None. Raises `ServiceError` for a token that came
    before, and after ``most`` pages.
    """
    seen: set[str] = set()
    given: Any = None
    while True:
        answer = ask(given)
        yield answer
        given = answer.get(token)
        if not given:
            return
        mark = repr(given)
        if mark in seen or len(seen) + 1 >= most:
            why = "a token came a second time" if mark in seen else f"{most:,} pages came"
            raise ServiceError(
                f"{what} does not end: {why}. Check which server answers there: a proxy, or a "
                "server other than AWS's."
            )
        seen.add(mark)
