"""Errors about missing credentials, and about roles that cannot be assumed."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, ServiceError, SparkinesisError
from sparkinesis.stream.calls.retry import error_code, is_retryable
from sparkinesis.stream.calls.session import profile_files
from sparkinesis.stream.credentials import CredentialSource

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
            f"No AWS credentials were found to call {call}. Provide them on the driver and on "
            "every executor: an instance or pod role, a profile in ~/.aws, or the environment "
            "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if code == "ProfileNotFound":
        config, credentials = profile_files()
        return AccessDeniedError(
            f"There is no profile {source.profile or 'of that name'!r} to call {call}: neither "
            f"{config} nor {credentials} holds one. Check the spelling of the option profile, or "
            "of the environment variable AWS_PROFILE if the option is not set. Every machine that "
            "runs the driver or an executor needs the profile in its own files. "
            f"botocore said: {said}"
        )
    if code in _UNUSABLE:
        return AccessDeniedError(
            f"The credentials to call {call} cannot be loaded. Correct the profile or the "
            "environment variables that configure them, on the driver and on every executor. "
            f"botocore said: {said}"
        )
    return None


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
    if error_code(error) not in {"AccessDenied", "AccessDeniedException"}:
        return AccessDeniedError(
            f"STS refuses the request to assume the role {role} to call {call}. Check that the "
            f"credentials of {owner} are valid, on the driver and on every executor, and that the "
            "option region (or stsEndpoint) names an STS that accepts them. "
            f"The service said: {said}"
        )
    condition = (
        "if the policy has a condition sts:ExternalId, set the option roleExternalId to its value"
        if source.external_id is None
        else "a condition sts:ExternalId in the policy must equal the option roleExternalId"
    )
    return AccessDeniedError(
        f"Not allowed to assume the role {role} to call {call}. The role's trust policy must "
        f"allow sts:AssumeRole to the credentials of {owner}, on the driver and on every "
        f"executor; {condition}. If the role and the credentials belong to two accounts, the "
        "credentials' own policy must also allow sts:AssumeRole on the role. "
        f"The service said: {said}"
    )
