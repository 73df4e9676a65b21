"""Faults of single statements of BatchExecuteStatement, applied before and after moto.

The shape of the errors is that of the service's ``BatchStatementError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkinesis.local.faults import Fault

OPERATION = "BatchExecuteStatement"

_Json = dict[str, Any]


def without_failing(body: bytes, fault: Fault) -> bytes | None:
    """Return the request with only the statements that take effect; None if there are none."""
    request: _Json = msgspec.json.decode(body)
    if fault.takes_effect:
        return body
    kept = [one for i, one in enumerate(request["Statements"]) if i not in fault.entries]
    return msgspec.json.encode({**request, "Statements": kept}) if kept else None


def with_errors(body: bytes, answer: bytes | None, fault: Fault) -> bytes:
    """Return the response to all statements of the request ``body``, errors included.

    ``answer``: the response to `without_failing`; None if no statement was left to execute.
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
