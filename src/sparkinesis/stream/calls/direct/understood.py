"""Turns whatever is wrong with an answer into one error, after which the call is made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from botocore.exceptions import HTTPClientError

from sparkinesis.errors import ServiceError

_T = TypeVar("_T")
_Client = TypeVar("_Client")

_SHOWN = 300
"""Characters of an error that are told: it may quote the answer."""


class MisunderstoodError(HTTPClientError):  # type: ignore[misc]
    """An answer has not the form of its operation: a proxy's, or another server's.

    It may be made again as if no answer had come, and the call may have taken effect.
    """

    fmt = "the answer is not understood: {error}"


NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    ServiceError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What the decoders raise, botocore's and ours, and who takes an answer apart."""


def understood(call: Callable[[_Client], _T], client: _Client) -> _T:
    """Make a call and take its answer apart. Raises botocore's errors, `MisunderstoodError` too."""
    try:
        return call(client)
    except NOT_UNDERSTOOD as error:
        told = str(error) if isinstance(error, ServiceError) else repr(error)
        raise MisunderstoodError(error=told[:_SHOWN]) from error


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
