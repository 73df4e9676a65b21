"""The service that is checked: AWS, or a server with its API; and the clients for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import CredentialSource, StreamAddress, is_loopback
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.session import open_client

_PATIENCE = 30.0
"""Seconds for which a call is tried again."""


class TargetError(Exception):
    """The service cannot be called at all: no credentials, no region. Nothing was made."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the check runs, with boto3's credentials."""

    region: str | None
    endpoint: str | None = None

    @property
    def is_this_machine(self) -> bool:
        """True for a server on this machine, which costs nothing."""
        return is_loopback(self.endpoint)

    def __str__(self) -> str:
        return self.endpoint or "AWS"

    def client(self, service: str) -> Any:
        """Return a botocore client without retries."""
        return open_client(service, CredentialSource(), self.region, self.endpoint)

    def stream(self, name: str) -> StreamClient:
        """Return the library's own client: a probe sends what a query or a worker sends."""
        address = StreamAddress(name, None, self.region, self.endpoint, CredentialSource())
        return StreamClient(address, Backoff(cap=2.0, give_up_after=_PATIENCE))

    def table(self, name: str) -> LeaseTable:
        return LeaseTable(name, self.region, self.endpoint, CredentialSource())

    def account(self) -> str:
        """Return the account and the region, by STS, which is free; or the endpoint.

        Raises `TargetError`.
        """
        if self.endpoint is not None:
            return self.endpoint
        try:
            client = self.client("sts")
            return (
                f"AWS account {client.get_caller_identity()['Account']}, {client.meta.region_name}"
            )
        except (ClientError, BotoCoreError) as error:
            raise TargetError(
                f"{self} cannot be called: {words(error)}. Give the region and credentials that "
                "boto3 finds: --region, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY."
            ) from None
