"""The permissions that a program has used, by the calls that the local server has seen.

And a server that refuses a program what its policy does not allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from deploy.iam import action_of
from sparkinesis.local import Call, Fault, LocalServer

_EVENTS = "SubscribeToShardEvent"
"""What the local server logs for each event of a subscription: no call."""


class Used:
    """Permissions used in the blocks of `watching`. The test's own calls lie outside."""

    def __init__(self, server: LocalServer) -> None:
        self.actions: set[str] = set()
        self._server = server
        self._of_dynamodb = _operations_of_dynamodb(server)

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = len(self._server.kinesis.calls)
        yield
        for call in list(self._server.kinesis.calls)[before:]:
            if call.operation != _EVENTS:
                self.actions.add(_action(call.operation, self._of_dynamodb))


@contextmanager
def only(server: LocalServer, actions: Collection[str]) -> Iterator[None]:
    """Let the server refuse all calls that these permissions do not allow."""
    of_dynamodb = _operations_of_dynamodb(server)

    def plan(call: Call) -> Fault | None:
        action = _action(call.operation, of_dynamodb)
        if action in actions:
            return None
        return Fault.error("AccessDeniedException", f"no policy allows {action}")

    before, server.kinesis.faults = server.kinesis.faults, plan
    try:
        yield
    finally:
        server.kinesis.faults = before


def _operations_of_dynamodb(server: LocalServer) -> frozenset[str]:
    return frozenset(server.client("dynamodb").meta.service_model.operation_names)


def _action(operation: str, of_dynamodb: Collection[str]) -> str:
    return action_of("dynamodb" if operation in of_dynamodb else "kinesis", operation)
