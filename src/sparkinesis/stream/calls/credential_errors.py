"""Errors about credentials: missing, expired or refused ones, and roles that cannot be assumed.

The cause comes first. A service that refuses credentials has not checked permissions, so the
error asks for none.
"""

from __future__ import annotations

import re
import sys

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, ServiceError, SparkinesisError
from sparkinesis.stream.address import CredentialSource
from sparkinesis.stream.calls.retry import error_code, is_retryable
from sparkinesis.stream.calls.session import profile_files

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
