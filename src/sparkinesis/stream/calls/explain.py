"""Turns errors of the service and of botocore into errors that say what, where, and what to do.

Credentials come first: those that are missing, expired or refused, and roles that cannot be
assumed. A service that refuses credentials has not checked permissions, so the error asks for none.
"""

from __future__ import annotations

import re
import sys
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
from sparkinesis.stream.calls.retry import error_code, is_retryable
from sparkinesis.stream.calls.session import profile_files
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position

_UNUSABLE = frozenset(
    {
        "CredentialRetrievalError",
        "PartialCredentialsError",
        "InvalidConfigError",
        "ConfigParseError",
        "MetadataRetrievalError",
        "NoAuthTokenError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
"""Names of botocore's errors for credentials that are configured but cannot be loaded."""

_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "TokenRefreshRequired"})
_CLOCK = frozenset(
    {"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpiredException"}
)
_SIGNATURE = frozenset(
    {"InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature"}
    | {"IncompleteSignatureException"}
)
_UNKNOWN = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "MissingAuthenticationTokenException",
        "MissingAuthenticationToken",
        "AuthFailure",
    }
)
REFUSED_CREDENTIALS = _EXPIRED | _CLOCK | _SIGNATURE | _UNKNOWN
"""The codes by which AWS refuses the credentials or their signature, not a permission."""

_SKEWED = re.compile("Signature (?:expired|not yet current)")
"""The service's words for a signature of another time than its own (Signature Version 4)."""

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


def spark_is_at_work() -> bool:
    """Return True in a process of Spark's: a driver with a context, or a Python worker."""
    if "pyspark.worker_util" in sys.modules:
        return True
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    return getattr(context, "_active_spark_context", None) is not None


def on_spark(where: str = " on the driver and on every executor") -> str:
    """Return ``where`` in a process of Spark's: elsewhere, only one machine is concerned."""
    return where if spark_is_at_work() else ""


def explain_credentials(
    error: ClientError | BotoCoreError, said: str, call: str, source: CredentialSource
) -> SparkinesisError | None:
    """Return the error to raise if loading credentials raised ``error``; else None.

    ``call`` names the call that needs the credentials, such as "GetRecords on stream 'flights'".
    """
    code = error_code(error)
    if getattr(error, "operation_name", None) == "AssumeRole":
        return _explain_assume_role(error, said, call, source)
    if code == "NoCredentialsError":
        return AccessDeniedError(
            f"No AWS credentials were found to call {call}. Provide them{on_spark()}: an instance "
            "or pod role, a profile in ~/.aws, or the environment variables AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
    if code == "ProfileNotFound":
        config, credentials = profile_files()
        profile = source.profile or getattr(error, "kwargs", {}).get("profile")
        named = "the option profile" if source.profile else "the environment variable AWS_PROFILE"
        each = on_spark(
            " Every machine that runs the driver or an executor needs the profile in its own files."
        )
        return AccessDeniedError(
            f"There is no profile {profile!r} to call {call}: neither {config} nor {credentials} "
            f"holds one. Check the spelling of {named}.{each} botocore said: {said}"
        )
    if code in _UNUSABLE:
        return AccessDeniedError(
            f"The credentials to call {call} cannot be loaded. Correct the profile or the "
            f"environment variables that configure them{on_spark()}. botocore said: {said}"
        )
    return _explain_refused(code, said, call) if code in REFUSED_CREDENTIALS else None


def _explain_refused(code: str, said: str, call: str) -> AccessDeniedError:
    """Return the error of credentials that the service refuses, by one of these codes."""
    if code in _EXPIRED:
        return AccessDeniedError(
            f"The credentials have expired, so {call} was refused. Renew them{on_spark()}: aws sso "
            "login, or a new session token. Environment variables of a process that runs stay as "
            "they were, so it must be started anew; a role, and a profile that fetches its "
            f"credentials, are renewed without that. The service said: {said}"
        )
    if code in _CLOCK or (code in _SIGNATURE and _SKEWED.search(said)):
        return AccessDeniedError(
            f"The clock of this machine is wrong, so the signature of {call} was refused: AWS "
            "takes none whose time differs from its own by more than five minutes. Set the clock "
            f"by NTP (chrony, systemd-timesyncd){on_spark()}. The service said: {said}"
        )
    if code in _SIGNATURE:
        return AccessDeniedError(
            f"The secret of the credentials is wrong, so the signature of {call} was refused. "
            f"Correct the secret access key{on_spark()}; if it is right, a proxy may change the "
            f"requests. The service said: {said}"
        )
    return AccessDeniedError(
        f"The credentials are not valid, so {call} was refused: the service does not know their "
        "access key or their session token. Check that the key was not deleted, that its session "
        "token belongs to it, and that the region and the endpoint are of the same partition "
        f"(aws, aws-cn, aws-us-gov){on_spark(', on the driver and on every executor')}. "
        f"The service said: {said}"
    )


def _explain_assume_role(
    error: ClientError | BotoCoreError, said: str, call: str, source: CredentialSource
) -> SparkinesisError:
    # Without the option roleArn, a profile names the role.
    role = source.role_arn or "that the profile names"
    owner = f"the profile {source.profile}" if source.profile else "this process"
    if is_retryable(error):
        return ServiceError(
            f"Cannot assume the role {role} to call {call}: every retry was used up. Check that "
            f"this machine can reach STS. The service said: {said}"
        )
    code = error_code(error)
    if code in _EXPIRED | _CLOCK or (code in _SIGNATURE and _SKEWED.search(said)):
        return _explain_refused(code, said, f"AssumeRole of {role}, which {call} needs,")
    if code not in {"AccessDenied", "AccessDeniedException"}:
        return AccessDeniedError(
            f"STS refuses the request to assume the role {role} to call {call}. Check that the "
            f"credentials of {owner} are valid{on_spark(', on the driver and on every executor,')} "
            "and that the region (or the STS endpoint that is set) is one that accepts them. "
            f"The service said: {said}"
        )
    condition = (
        "if the policy has a condition sts:ExternalId, set the external id of the role to its value"
        if source.external_id is None
        else "a condition sts:ExternalId in the policy must equal the external id that is set"
    )
    everywhere = on_spark(", on the driver and on every executor")
    return AccessDeniedError(
        f"Not allowed to assume the role {role} to call {call}. The role's trust policy must "
        f"allow sts:AssumeRole to the credentials of {owner}{everywhere}; {condition}. If the role "
        "and the credentials belong to two accounts, the credentials' own policy must also allow "
        f"sts:AssumeRole on the role. The service said: {said}"
    )
