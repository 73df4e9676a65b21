"""Answers that are one JSON object."""

from __future__ import annotations

from typing import Any

import msgspec
from botocore.exceptions import HTTPClientError

from sparkinesis.stream.calls.direct.connection import Answer

_DECODER = msgspec.json.Decoder(dict[str, Any])


def decode_object(answer: Answer) -> dict[str, Any]:
    """Decode an answer's body; an empty one is an empty object.

    Raises botocore's `HTTPClientError`, which is retried, for a body that is no JSON object: such
    an answer is of a proxy or of another server. The error shows how the body starts.
    """
    try:
        return _DECODER.decode(answer.body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        start = bytes(answer.body[:60])
        raise HTTPClientError(
            error=ValueError(f"the answer is no JSON object, and starts with {start!r} ({error})")
        ) from error
