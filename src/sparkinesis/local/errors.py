"""The error answers of the service, as exceptions. Messages follow the service's own wording."""

from __future__ import annotations


class KinesisError(Exception):
    """One error answer: its `code` (`__type` on the wire), and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ConnectionDroppedError(Exception):
    """A fault plan cut the connection: the caller gets no answer at all."""


def stream_not_found(name: str, account: str) -> KinesisError:
    return KinesisError(
        "ResourceNotFoundException", f"Stream {name} under account {account} not found."
    )


def shard_not_found(shard: str, stream: str, account: str) -> KinesisError:
    """For the control plane (SplitShard, MergeShards)."""
    return KinesisError(
        "ResourceNotFoundException",
        f"Could not find shard {shard} in stream {stream} under account {account}.",
    )


def shard_does_not_exist(shard: str, stream: str, account: str) -> KinesisError:
    """For the data plane (GetShardIterator, GetRecords)."""
    return KinesisError(
        "ResourceNotFoundException",
        f"Shard {shard} in stream {stream} under account {account} does not exist",
    )


def not_active(stream: str, account: str, status: str) -> KinesisError:
    return KinesisError(
        "ResourceInUseException",
        f"Stream {stream} under account {account} not ACTIVE, instead in state {status}",
    )


def invalid_argument(message: str) -> KinesisError:
    return KinesisError("InvalidArgumentException", message)


def validation(*problems: str) -> KinesisError:
    """`problems` are constraint violations: "Value 'x' at 'limit' failed to satisfy ..."."""
    noun = "error" if len(problems) == 1 else "errors"
    return KinesisError(
        "ValidationException", f"{len(problems)} validation {noun} detected: {'; '.join(problems)}"
    )


def serialization(message: str) -> KinesisError:
    return KinesisError("SerializationException", message)


def limit_exceeded(message: str) -> KinesisError:
    return KinesisError("LimitExceededException", message)


def shard_throttled(shard: str, stream: str, account: str) -> KinesisError:
    return KinesisError(
        "ProvisionedThroughputExceededException", rate_message(shard, stream, account)
    )


def rate_message(shard: str, stream: str, account: str) -> str:
    return f"Rate exceeded for shard {shard} in stream {stream} under account {account}."


def unknown_operation(target: str) -> KinesisError:
    return KinesisError("UnknownOperationException", f"Unknown operation: {target or '(none)'}")


def missing_token() -> KinesisError:
    return KinesisError("MissingAuthenticationTokenException", "Missing Authentication Token")
