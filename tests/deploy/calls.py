"""The permissions that a program has used, by the calls that the local server has seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deploy.iam import action_of
from sparkinesis.local import LocalServer

_EVENTS = "SubscribeToShardEvent"
"""What the local server logs for each event of a subscription: no call."""


class Used:
    """Permissions used in the blocks of `watching`. The test's own calls lie outside."""

    def __init__(self, server: LocalServer) -> None:
        self.actions: set[str] = set()
        self._server = server
        model = server.client("dynamodb").meta.service_model
        self._of_dynamodb = frozenset(model.operation_names)

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = len(self._server.kinesis.calls)
        yield
        for call in list(self._server.kinesis.calls)[before:]:
            if call.operation != _EVENTS:
                service = "dynamodb" if call.operation in self._of_dynamodb else "kinesis"
                self.actions.add(action_of(service, call.operation))
