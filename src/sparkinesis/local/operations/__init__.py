"""The operations of Kinesis by name; each is a function of a context and a typed request.

`streams`, `shard_operations`, `registration` (of consumers), `queues`, `resources` (tags and
policies) and `account` manage; `put_records` writes, `reading` reads, as `queues` do. Each has a
`context`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from sparkinesis.local.encoding import requests
from sparkinesis.local.model.queue import Poll
from sparkinesis.local.model.records import RecordPage
from sparkinesis.local.model.registered_consumer import ServedSubscription
from sparkinesis.local.operations import (
    account,
    put_records,
    queues,
    reading,
    registration,
    resources,
    shard_operations,
    streams,
)
from sparkinesis.local.operations.context import Context, Json

Done = RecordPage | Json | ServedSubscription | None
Result = Done | Poll
"""What an operation returns. A `Poll` is not done: it may have to wait."""

_MODULES = (
    account,
    put_records,
    queues,
    reading,
    registration,
    resources,
    shard_operations,
    streams,
)


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: its request type and its function. trusting: see `Codec.decode`."""

    request: type[requests.Request]
    handle: Callable[[Context, Any], Result]
    trusting: bool = False


def _operations() -> dict[str, Operation]:
    """Return the functions that take a request, by the operations that they are named after.

    Operations that are missing here, those on channels, return UnknownOperationException:
    docs/local-server.md lists them.
    """
    found = {}
    for module in _MODULES:
        for name, handle in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and "request" in handle.__annotations__:
                request = get_type_hints(handle)["request"]
                operation = "".join(part.capitalize() for part in name.split("_"))
                found[operation] = Operation(request, handle, trusting=module is put_records)
    return found


OPERATIONS: Mapping[str, Operation] = _operations()
