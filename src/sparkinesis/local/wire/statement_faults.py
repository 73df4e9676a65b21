"""Faults of single statements of BatchExecuteStatement, which are put in on its way to moto.

The errors' shape is that of the service's ``BatchStatementError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkinesis.local.faults import Fault

OPERATION = "BatchExecuteStatement"

_Json = dict[str, Any]


def without_failing(body: bytes, fault: Fault) -> bytes | None:
    """The request with those statements only that take effect; None if that is none of them."""
    request: _Json = msgspec.json.decode(body)
    if fault.takes_effect:
        return body
    kept = [one for i, one in enumerate(request["Statements"]) if i not in fault.entries]
    return msgspec.json.encode({**request, "Statements": kept}) if kept else None


def with_errors(body: bytes, answer: bytes | None, fault: Fault) -> bytes:
    """The answer to all statements of the request ``body``.

    ``answer``: to `without_failing`, None where there was nothing left to ask.
    """
    answered: _Json = {"Responses": []} if answer is None else msgspec.json.decode(answer)
    responses = list(answered["Responses"])
    error: Mapping[str, Any] = {"Error": {"Code": fault.code, "Message": fault.message}}
    for i in range(len(msgspec.json.decode(body)["Statements"])):
        if i not in fault.entries:
            continue
        if fault.takes_effect:
            responses[i] = error
        else:
            responses.insert(i, error)
    return msgspec.json.encode({**answered, "Responses": responses})
