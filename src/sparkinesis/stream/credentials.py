"""The source of the credentials for a stream, but never the credentials themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.public import public

DEFAULT_SESSION_NAME = "sparkinesis"


@public
@dataclass(frozen=True, slots=True)
class CredentialSource:
    """The settings by which each process, on driver and executors, finds its own credentials.

    It is sent to the executors with the stream's address, so it holds no secret. AWS does not treat
    the external id as a secret either, but no text shows it: it belongs to the role's owner.
    """

    profile: str | None = None
    """A profile in this process's ~/.aws; None for boto3's default search."""
    role_arn: str | None = None
    """A role to assume with these credentials."""
    external_id: str | None = field(default=None, repr=False)
    session_name: str = DEFAULT_SESSION_NAME
    """The session name that CloudTrail shows for the assumed role."""
    sts_endpoint: str | None = field(default=None, repr=False)
    """The URL of another STS, such as a VPC endpoint."""


FOUND_BY_BOTO = CredentialSource()
