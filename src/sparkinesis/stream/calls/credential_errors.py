"""Errors about credentials, before a call is even made: none found, or a role not to be had."""

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
"""What botocore raises when credentials are set up, but cannot be had."""


def explain_credentials(
    error: ClientError | BotoCoreError, said: str, call: str, source: CredentialSource
) -> SparkinesisError | None:
    """The error to raise if ``error`` came from looking for credentials; else None.

    ``call`` is what the credentials are for, such as "GetRecords on stream 'flights'".
    """
    code = error_code(error)
    if getattr(error, "operation_name", None) == "AssumeRole":
        return _explain_assume_role(error, said, call, source)
    if code == "NoCredentialsError":
        return AccessDeniedError(
            f"No AWS credentials were found to call {call}. Give this process "
            "some, on the driver and on every executor: an instance or pod role, a profile in "
            "~/.aws, or the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if code == "ProfileNotFound":
        config, credentials = profile_files()
        return AccessDeniedError(
            f"There is no profile {source.profile or 'of that name'!r} to call {call} with: it was "
            f"looked for in {config} and {credentials}. Check the option profile for a typing "
            "error, or the environment variable AWS_PROFILE if the option is not given. Every "
            "machine that runs the driver or an executor needs the profile in its own files. "
            f"botocore said: {said}"
        )
    if code in _UNUSABLE:
        return AccessDeniedError(
            f"The credentials to call {call} cannot be had. Correct the profile or the environment "
            f"variables that set them up, on the driver and on every executor. botocore said: "
            f"{said}"
        )
    return None


def _explain_assume_role(
    error: ClientError | BotoCoreError, said: str, call: str, source: CredentialSource
) -> SparkinesisError:
    # Without the option roleArn, it is a profile that names the role.
    role = source.role_arn or "that the profile names"
    asking = f"the profile {source.profile}" if source.profile else "this process"
    if is_retryable(error):
        return ServiceError(
            f"The role {role}, which is to call {call}, could not be assumed: every retry was used "
            f"up. Check that this machine reaches STS. The service said: {said}"
        )
    if error_code(error) not in {"AccessDenied", "AccessDeniedException"}:
        return AccessDeniedError(
            f"STS refuses the request to assume the role {role}, which is to call {call}. Check "
            f"that the credentials that {asking} has are valid, on the driver and on every "
            f"executor, and that the option region (or stsEndpoint) names an STS that knows them. "
            f"The service said: {said}"
        )
    condition = (
        "if it has a condition sts:ExternalId, set the option roleExternalId to that"
        if source.external_id is None
        else "its condition sts:ExternalId, if there is one, must equal the option roleExternalId"
    )
    return AccessDeniedError(
        f"Not allowed to assume the role {role}, which is to call {call}. The role's trust policy "
        f"must allow sts:AssumeRole to the credentials that {asking} has, on the driver and on "
        f"every executor; {condition}. Where role and credentials belong to two accounts, the "
        "credentials' own policy must allow sts:AssumeRole on the role too. The service said: "
        f"{said}"
    )
