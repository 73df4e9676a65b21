"""Errors of the service and of botocore, told so that they teach: what, where, what to do."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.credential_errors import explain_credentials
from sparkinesis.stream.calls.retry import error_code, is_retryable
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position

ACCESS_DENIED = frozenset(
    {
        "AccessDeniedException",
        "AccessDenied",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "InvalidClientTokenId",
        "IncompleteSignature",
        "MissingAuthenticationTokenException",
        "ExpiredTokenException",
        "ExpiredToken",
        "NotAuthorized",
        "OptInRequired",
        "KMSAccessDeniedException",
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

BEGIN_ELSEWHERE = (
    "begin elsewhere (a streaming query with a new checkpoint location, a batch read with another "
    "startingPosition)"
)
"""What to do about a position that is gone, other than to go on behind it."""


def words(error: ClientError | BotoCoreError) -> str:
    """What the service or botocore said, as one line.

    Without the request that AWS repeats when it refuses a signature ("The Canonical String for
    this request should have been ..."): a session token is one of its headers.
    """
    if not isinstance(error, ClientError):
        return " ".join(str(error).split())
    message = str(error.response.get("Error", {}).get("Message") or "no message")
    message = re.split("The Canonical String|The String-to-Sign", message, maxsplit=1)[0]
    return f"{error_code(error)}: {' '.join(message.split())}"


def explain(
    error: ClientError | BotoCoreError,
    operation: str,
    address: StreamAddress,
    shard_id: str | None,
    position: Position | None,
) -> SparkinesisError:
    """The error to raise for ``error``, as one paragraph without the service's traceback."""
    code = error_code(error)
    said = words(error)
    where = f"{address}" if shard_id is None else f"shard {shard_id} of {address}"
    if position is not None:
        where += f" at position {position}"
    about = explain_credentials(error, said, f"{operation} on {where}", address.credentials)
    if about is not None:
        return about
    if code == "ExpiredIteratorException":
        return ExpiredIteratorError(f"The iterator of {where} has expired. {said}")
    if code == "ResourceNotFoundException" and shard_id is None:
        return StreamNotFoundError(
            f"There is no {address}. Check the option streamName or streamARN (stream, of an "
            "Application) for a typing error, and that the option region names the region, and "
            f"your credentials the account, that the stream is in. The service said: {said}"
        )
    if code == "ResourceNotFoundException":
        return ShardNotFoundError(
            f"{where} does not exist any more: its records were older than the stream's retention "
            "period, or the stream was deleted and created anew. What had not been read of it is "
            "lost. Set the option failOnDataLoss to false to go on with what is left, or "
            f"{BEGIN_ELSEWHERE}. The service said: {said}"
        )
    if code == "InvalidArgumentException" and isinstance(position, AfterRecord):
        return PositionNotFoundError(
            f"The service does not know the sequence number of {where}: it has expired, or it "
            "comes from another stream, for instance because this one was deleted and created "
            "anew. Set the option failOnDataLoss to false to go on with the oldest records kept, "
            f"or {BEGIN_ELSEWHERE}. The service said: {said}"
        )
    if code == "InvalidArgumentException" and isinstance(position, AtTimestamp):
        instant = datetime.fromtimestamp(position.ms / 1000, timezone.utc).isoformat()
        return ServiceError(
            f"The service refuses to begin {where}, which is {instant}: most likely that instant "
            "lies in its future. Set the option initialPosition (of a batch read startingPosition) "
            f"to an instant that has passed, or to latest. The service said: {said}"
        )
    if code == "ResourceInUseException" and operation == "SubscribeToShard":
        return ServiceError(
            f"Other subscriptions keep {where} from being read: something else reads with the same "
            "registered consumer, or the consumer is not ACTIVE. Give each query and each "
            f"application a consumer of its own (option consumerName). The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to call {operation} on {where}. Give the credentials in use "
            f"{_needed(operation)}. The service said: {said}"
        )
    if code == "NoRegionError":
        return ServiceError(
            f"No region is known for {where}. Set the option region, for instance to eu-west-1, "
            "or the environment variable AWS_DEFAULT_REGION on the driver and on every executor."
        )
    if code == "EndpointConnectionError":
        return ServiceError(
            f"Nothing answers for {where}. Check the options region and endpoint, and stsEndpoint "
            "if it is given, for a typing error, and that this machine reaches the endpoint. "
            f"botocore said: {said}"
        )
    advice = "Every retry was used up." if is_retryable(error) else "A retry would not help."
    return ServiceError(f"{operation} failed on {where}. {advice} The service said: {said}")


def _needed(operation: str) -> str:
    """The permissions of all that one who makes this call does, and on what."""
    if operation == "PutRecords":
        return "kinesis:PutRecords and kinesis:ListShards on the stream"
    if operation == "SubscribeToShard":
        return (
            "kinesis:SubscribeToShard and kinesis:DescribeStreamConsumer on the stream's consumers "
            "(their ARNs are the stream's with /consumer/* behind it)"
        )
    if operation in CONSUMER_OPERATIONS:
        return (
            f"kinesis:{operation} on the stream and its consumers (their ARNs are the stream's "
            "with /consumer/* behind it); enhanced fan-out needs kinesis:RegisterStreamConsumer, "
            "kinesis:DescribeStreamConsumer, kinesis:ListStreamConsumers and "
            "kinesis:SubscribeToShard there"
        )
    return (
        "kinesis:DescribeStreamSummary, kinesis:ListShards, kinesis:GetShardIterator and "
        "kinesis:GetRecords on the stream"
    )
