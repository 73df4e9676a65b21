"""The KCL's names for the reasons why a checkpoint fails."""

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
"""The lease is lost: stop processing."""
THROTTLING = "ThrottlingException"
"""DynamoDB does not respond: retry later."""
INVALID_STATE = "InvalidStateException"
"""The lease table does not exist, or is another kind of table."""
ILLEGAL_ARGUMENT = "IllegalArgumentException"
"""The position may not be checkpointed."""
DEPENDENCY = "KinesisClientLibDependencyException"
"""Any other failure of a call to DynamoDB."""

_NAMES: tuple[tuple[type[SparkinesisError], str], ...] = (
    (LeaseLostError, SHUTDOWN),
    (LeaseTableUnavailableError, THROTTLING),
    (LeaseTableError, INVALID_STATE),
    (RefusedCheckpointError, ILLEGAL_ARGUMENT),
)


class CheckpointError(Exception):
    """A checkpoint failed. Its ``__cause__`` is the error of sparkinesis, with the details.

    value: the simple class name of the Java KCL's exception.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        # amazon_kclpy shows the name in quotes; here the reason follows.
        reason = f": {self.__cause__}" if self.__cause__ is not None else ""
        return f"{self.value!r}{reason}"


def checkpoint_error(error: SparkinesisError) -> CheckpointError:
    """Return the exception that amazon_kclpy raises in place of ``error``."""
    for kind, name in _NAMES:
        if isinstance(error, kind):
            return CheckpointError(name)
    return CheckpointError(DEPENDENCY)
