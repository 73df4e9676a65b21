"""Turns errors of the service and of botocore into errors that say what, where, and what to do."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
    SparkinesisError,
    StreamNotFoundError,
    printable,
)
from sparkinesis.stream.address import CredentialSource, StreamAddress, without_secrets
from sparkinesis.stream.calls.credential_errors import (
    REFUSED_CREDENTIALS,
    explain_credentials,
    on_spark,
)
from sparkinesis.stream.calls.retry import error_code, is_retryable
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position

ACCESS_DENIED = frozenset(
    {
        "AccessDeniedException",
        "AccessDenied",
        "NotAuthorized",
        "OptInRequired",
        "KMSAccessDeniedException",
        *REFUSED_CREDENTIALS,
    }
)

CONSUMER_OPERATIONS = frozenset(
    {
        "RegisterStreamConsumer",
        "DeregisterStreamConsumer",
        "DescribeStreamConsumer",
        "ListStreamConsumers",
    }
)

START_ELSEWHERE = (
    "start elsewhere (a streaming query with a new checkpoint location, a batch read with another "
    "startingPosition)"
)
"""Advice for a position that no longer exists, in addition to resuming after the position."""


class _Words(NamedTuple):
    """The words by which errors name a door's options, and advice for its users."""

    stream: str
    region: str
    endpoints: str
    consumer: str
    start: str
    """Advice for a start in the future."""
    left: str
    """Advice for a shard, or a record, that is no longer there."""


_QUERY = _Words(
    "option streamName or streamARN",
    "option region",
    "options region, endpoint and stsEndpoint",
    "option consumerName",
    "Set the option initialPosition (startingPosition in a batch read) to an instant in the past, "
    "or to latest.",
    "Set the option failOnDataLoss to false to resume with the oldest record that is left, or "
    f"{START_ELSEWHERE}.",
)
_APPLICATION = _Words(
    "stream's name or ARN",
    "given region",
    "region, the endpoint and the sts_endpoint",
    "consumer_name",
    "Give initial_position an instant in the past, or latest. If leases hold this one, move the "
    "application by `sparkinesis reset --to latest`, or --to another position.",
    "`sparkinesis reset` moves an application to another position.",
)


def _words_of(address: StreamAddress) -> _Words:
    return _QUERY if address.is_querys else _APPLICATION


def words(error: Exception) -> str:
    """Return the message of an error, above all of the service, as one line that is printable.

    AWS repeats the request when it refuses a signature ("The Canonical String for this request
    should have been ..."). That part is left out: one of its headers is a session token. A URL is
    shown without its query.
    """
    if not isinstance(error, ClientError):
        return printable(without_secrets(" ".join(str(error).split())))
    message = str(error.response.get("Error", {}).get("Message") or "no message")
    message = re.split("The Canonical String|The String-to-Sign", message, maxsplit=1)[0]
    return printable(without_secrets(f"{error_code(error)}: {' '.join(message.split())}"))


def is_unknown_position(error: BaseException, position: Position | None) -> bool:
    """Return True if an error says that there is no record of a position's sequence number.

    A reader that believes it resumes elsewhere, or fails: it is believed only the second time.
    """
    return error_code(error) == "InvalidArgumentException" and isinstance(position, AfterRecord)


def explain(
    error: ClientError | BotoCoreError,
    operation: str,
    address: StreamAddress,
    shard_id: str | None,
    position: Position | None,
) -> SparkinesisError:
    """Return the error to raise for ``error``: one paragraph, without the service's traceback."""
    code, own = error_code(error), _words_of(address)
    said = words(error)
    where = f"{address}" if shard_id is None else f"shard {shard_id} of {address}"
    if position is not None:
        where += f" at position {position}"
    where = printable(where)
    about = explain_place(error, operation, where, address.credentials, own.endpoints)
    if about is not None:
        return about
    if code == "ExpiredIteratorException":
        return ExpiredIteratorError(f"The iterator of {where} has expired. {said}")
    if code == "ResourceNotFoundException" and shard_id is None:
        return StreamNotFoundError(
            f"There is no {address}.{_region_source(address)} Check the spelling of the "
            f"{own.stream}, that the {own.region} is the stream's region, and that your "
            f"credentials belong to the stream's account. The service said: {said}"
        )
    if code == "ResourceNotFoundException":
        return ShardNotFoundError(
            f"{where} no longer exists: its records are older than the stream's retention period, "
            "or the stream was deleted and created again. The shard's unread records are lost. "
            f"{own.left} The service said: {said}"
        )
    if is_unknown_position(error, position):
        return PositionNotFoundError(
            f"The service does not know the sequence number of {where}. It was asked twice: the "
            "record has expired, or "
            "the number comes from another stream, for instance because this stream was deleted "
            f"and created again. {own.left} The service said: {said}"
        )
    if code == "InvalidArgumentException" and isinstance(position, AtTimestamp):
        instant = datetime.fromtimestamp(position.ms / 1000, timezone.utc).isoformat()
        return ServiceError(
            f"The service refuses to start {where}, which is {instant}: most likely that instant "
            f"is in the future. {own.start} The service said: {said}"
        )
    if code == "ResourceInUseException" and operation == "SubscribeToShard":
        return ServiceError(
            f"Cannot subscribe to {where}: another reader uses the same registered consumer, or "
            "the consumer is not ACTIVE. Give each query and each application its own consumer "
            f"({own.consumer}). The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to call {operation} on {where}. Grant the credentials in use "
            f"{_needed(operation)}. The service said: {said}"
        )
    return unexplained(error, operation, where)


def explain_place(
    error: ClientError | BotoCoreError,
    operation: str,
    where: str,
    source: CredentialSource,
    endpoints: str,
) -> SparkinesisError | None:
    """Return the error for credentials, a region or an endpoint that no call can go with.

    endpoints: the words by which a user knows what leads to the endpoint. None: for another error.
    """
    code, said = error_code(error), words(error)
    if code == "NoRegionError":
        return ServiceError(
            f"No region is set for {where}. Set the region, for instance to eu-west-1, "
            f"or the environment variable AWS_REGION{on_spark()}."
        )
    if code == "EndpointConnectionError":
        return ServiceError(
            f"The endpoint of {where} does not answer. Check the spelling of the "
            f"{endpoints}, and that this machine can reach the endpoint. "
            f"botocore said: {said}"
        )
    return explain_credentials(error, said, f"{operation} on {where}", source)


def unexplained(error: ClientError | BotoCoreError, operation: str, where: str) -> ServiceError:
    """Return the error for one that has no explanation: what the service said."""
    advice = "Every retry was used up." if is_retryable(error) else "A retry would not help."
    return ServiceError(f"{operation} failed on {where}. {advice} The service said: {words(error)}")


def _region_source(address: StreamAddress) -> str:
    """Return a sentence about the source of a region that was given; empty for any other."""
    if address.region is None:
        return ""
    if address.arn:
        return " The region is that of the stream's ARN."
    return (
        " The region is that of the option region."
        if address.is_querys
        else " The region is the one that was given."
    )


def _needed(operation: str) -> str:
    """Return the permissions that a caller of this operation needs, and on which resources."""
    if operation == "PutRecords":
        return "kinesis:PutRecords and kinesis:ListShards on the stream"
    if operation == "SubscribeToShard":
        return (
            "kinesis:SubscribeToShard and kinesis:DescribeStreamConsumer on the stream's consumers "
            "(their ARNs are the stream's ARN plus /consumer/*)"
        )
    if operation in CONSUMER_OPERATIONS:
        return (
            f"kinesis:{operation} on the stream and its consumers (their ARNs are the stream's "
            "ARN plus /consumer/*); enhanced fan-out needs kinesis:RegisterStreamConsumer, "
            "kinesis:DescribeStreamConsumer, kinesis:ListStreamConsumers and "
            "kinesis:SubscribeToShard there"
        )
    return (
        "kinesis:DescribeStreamSummary, kinesis:ListShards, kinesis:GetShardIterator and "
        "kinesis:GetRecords on the stream"
    )
