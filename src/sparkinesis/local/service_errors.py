"""The service's error responses as exceptions. Messages follow the service's own wording."""

from __future__ import annotations

from functools import partial


class KinesisError(Exception):
    """An error response: its `code` (`__type` on the wire), message and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


invalid_argument = partial(KinesisError, "InvalidArgumentException")
limit_exceeded = partial(KinesisError, "LimitExceededException")
serialization = partial(KinesisError, "SerializationException")
throttled = partial(KinesisError, "ThrottlingException")


class ConnectionDroppedError(Exception):
    """A fault plan dropped the connection: the caller receives no response."""


def stream_not_found(name: str, account: str) -> KinesisError:
    return KinesisError(
        "ResourceNotFoundException", f"Stream {name} under account {account} not found."
    )


def shard_not_found(shard: str, stream: str, account: str) -> KinesisError:
    """The message of the control plane (SplitShard, MergeShards)."""
    return KinesisError(
        "ResourceNotFoundException",
        f"Could not find shard {shard} in stream {stream} under account {account}.",
    )


def shard_does_not_exist(shard: str, stream: str, account: str) -> KinesisError:
    """The message of the data plane (GetShardIterator, GetRecords)."""
    return KinesisError(
        "ResourceNotFoundException",
        f"Shard {shard} in stream {stream} under account {account} does not exist",
    )


def not_active(stream: str, account: str, status: str) -> KinesisError:
    return KinesisError(
        "ResourceInUseException",
        f"Stream {stream} under account {account} not ACTIVE, instead in state {status}",
    )


def provisioned(stream: str, account: str) -> KinesisError:
    return KinesisError(
        "ValidationException",
        f"Request is invalid. Stream {stream} under account {account} is in Provisioned mode.",
    )


def queue_not_found(arn: str, account: str) -> KinesisError:
    return KinesisError(
        "ResourceNotFoundException", f"Queue {arn} under account {account} not found."
    )


def queue_not_active(
    name: str, account: str, status: str, code: str = "ResourceInUseException"
) -> KinesisError:
    message = f"Queue {name} under account {account} not ACTIVE, instead in state {status}"
    return KinesisError(code, message)


def validation(*problems: str) -> KinesisError:
    """A ValidationException for these problems, each as `validation.violation` returns it."""
    noun = "error" if len(problems) == 1 else "errors"
    return KinesisError(
        "ValidationException", f"{len(problems)} validation {noun} detected: {'; '.join(problems)}"
    )


def shard_throttled(shard: str, stream: str, account: str) -> KinesisError:
    return KinesisError(
        "ProvisionedThroughputExceededException", rate_message(shard, stream, account)
    )


def rate_message(shard: str, stream: str, account: str) -> str:
    return f"Rate exceeded for shard {shard} in stream {stream} under account {account}."


def unsupported(content_type: str) -> KinesisError:
    return KinesisError(
        "UnsupportedMediaType",
        f"Kinesis takes JSON 1.1 and CBOR 1.1, and not {content_type[:100] or '(no type)'}",
        415,
    )


def unknown_operation(target: str) -> KinesisError:
    return KinesisError("UnknownOperationException", f"Unknown operation: {target or '(none)'}")


def unknown_to_botocore(operation: str, version: str) -> KinesisError:
    return KinesisError(
        "UnknownOperationException",
        f"Unknown operation: {operation}. The local server takes the model of the service from "
        f"botocore, and botocore {version} does not have it: botocore >= 1.44.5 is needed.",
    )


def dry_run_throttled(stream: str, account: str) -> KinesisError:
    """The error of a second dry run in a second, by any of the five operations that have it."""
    return throttled(f"Rate exceeded for dry runs of stream {stream} under account {account}.")


def dry_run() -> KinesisError:
    return KinesisError(
        "DryRunOperationException",
        "The request was rejected because the DryRun parameter was specified.",
    )
