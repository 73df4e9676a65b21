"""A fault plan for the local Kinesis and its DynamoDB: which calls meet which faults."""

from __future__ import annotations

from collections.abc import Collection

from sparkinesis.local import Call, Fault


class Failing:
    """The calls of an operation, of some or of any (None), meet these faults, one after the other.

    times: as often, all of them. then: what each later call meets. only: other fields of the calls
    that are meant, such as their stream.
    """

    def __init__(
        self,
        operation: str | Collection[str] | None,
        *faults: Fault | None,
        times: int = 1,
        then: Fault | None = None,
        **only: str,
    ) -> None:
        self._operations = {operation} if isinstance(operation, str) else operation
        self._left = list(faults) * times
        self._then = then
        self._only = only
        self.met = 0
        """How many calls met a fault."""

    def __call__(self, call: Call) -> Fault | None:
        is_meant = self._operations is None or call.operation in self._operations
        if not is_meant or any(getattr(call, name) != self._only[name] for name in self._only):
            return None
        fault = self._left.pop(0) if self._left else self._then
        self.met += fault is not None
        return fault
