"""Where the credentials for a stream come from; never the credentials themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.public import public

DEFAULT_SESSION_NAME = "sparkinesis"


@public
@dataclass(frozen=True, slots=True)
class CredentialSource:
    """What every process that calls a stream, driver or executor, finds its own credentials by.

    Travels with the stream's address to the executors, so it holds no secret. The external id is
    none to AWS either, but is kept out of texts: it belongs to whoever gave the role.
    """

    profile: str | None = None
    """A profile of this process's ~/.aws; None: wherever boto3 looks."""
    role_arn: str | None = None
    """A role to assume with the credentials that were found."""
    external_id: str | None = field(default=None, repr=False)
    session_name: str = DEFAULT_SESSION_NAME
    """What CloudTrail calls the one who assumed the role."""
    sts_endpoint: str | None = None
    """URL of another STS, such as a VPC endpoint's."""


FOUND_BY_BOTO = CredentialSource()
