"""Why a checkpoint was not made, in the words of the KCL."""

from __future__ import annotations

from sparkinesis.errors import (
    CheckpointError as RefusedCheckpointError,
)
from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
    SparkinesisError,
)

SHUTDOWN = "ShutdownException"
"""The lease is gone: stop processing."""
THROTTLING = "ThrottlingException"
"""DynamoDB does not answer: try again later."""
INVALID_STATE = "InvalidStateException"
"""The lease table is missing, or is none."""
ILLEGAL_ARGUMENT = "IllegalArgumentException"
"""Not a place that may be checkpointed."""
DEPENDENCY = "KinesisClientLibDependencyException"
"""Anything else that went wrong in calling DynamoDB."""

_NAMES: tuple[tuple[type[SparkinesisError], str], ...] = (
    (LeaseLostError, SHUTDOWN),
    (LeaseTableUnavailableError, THROTTLING),
    (LeaseTableError, INVALID_STATE),
    (RefusedCheckpointError, ILLEGAL_ARGUMENT),
)


class CheckpointError(Exception):
    """A checkpoint was not made. Its cause is the error of sparkinesis, which says more.

    value: the simple name of the exception that a Java KCL would raise.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        # amazon_kclpy shows the name in quotes; the reason follows it here.
        reason = f": {self.__cause__}" if self.__cause__ is not None else ""
        return f"{self.value!r}{reason}"


def checkpoint_error(error: SparkinesisError) -> CheckpointError:
    """What amazon_kclpy would raise in the place of ``error``."""
    for kind, name in _NAMES:
        if isinstance(error, kind):
            return CheckpointError(name)
    return CheckpointError(DEPENDENCY)
