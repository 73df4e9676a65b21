"""A KCL application's lease table in DynamoDB. Read only: nothing here writes to it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.lease.lease import Lease, decode_lease
from sparkinesis.stream.access import explain_credentials
from sparkinesis.stream.address import place_of
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.explain import ACCESS_DENIED, words
from sparkinesis.stream.retry import THROTTLED, Retry, error_code
from sparkinesis.stream.session import open_client


@functools.lru_cache(maxsize=16)
def _boto_client(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    return open_client("dynamodb", credentials, region, endpoint)


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """The lease table of the application ``name``, which is the table's name as well."""

    name: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO

    def __str__(self) -> str:
        return f"lease table {self.name!r} in {place_of(self.region, self.endpoint)}"

    def leases(self, retry: Retry | None = None) -> list[Lease]:
        """All leases, by a Scan of consistent reads; rows that are none are left out.

        Raises `LeaseTableError` if there is no such table, `AccessDeniedError`, and `ServiceError`
        for anything else once retries ran out.
        """
        items: list[Mapping[str, Any]] = []
        # Without ConsistentRead a checkpoint may come back that was overwritten a moment ago.
        request: dict[str, Any] = {"TableName": self.name, "ConsistentRead": True}
        while True:
            answer = self._scan(request, retry or Retry())
            items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return [lease for lease in map(decode_lease, items) if lease is not None]

    def _scan(self, request: Mapping[str, Any], retry: Retry) -> Mapping[str, Any]:
        try:
            client = _boto_client(self.region, self.endpoint, self.credentials)
            answer: Mapping[str, Any] = retry.call(lambda: client.scan(**request))
        except (ClientError, BotoCoreError) as error:
            # `from None`: the service's words are in the text; a second traceback hides it.
            raise _explained(error, self) from None
        return answer


def _explained(error: ClientError | BotoCoreError, table: LeaseTable) -> SparkinesisError:
    code = error_code(error)
    said = words(error)
    about_credentials = explain_credentials(error, said, f"Scan on the {table}", table.credentials)
    if about_credentials is not None:
        return about_credentials
    if code == "ResourceNotFoundException":
        return LeaseTableError(
            f"There is no {table}. A KCL application keeps its checkpoints in a DynamoDB table of "
            "its own name: check that name in the option initialPosition, that the application "
            "runs in the region of the option region, and that your credentials are of its "
            f"account. The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to read the {table}. Give the credentials in use dynamodb:Scan on it; "
            f"nothing else is called on it, and nothing is written. The service said: {said}"
        )
    if code == "EndpointConnectionError":
        return ServiceError(
            f"Nothing answers for the {table}. Check the options region and dynamodbEndpoint for "
            f"a typing error, and that the driver reaches the endpoint. botocore said: {said}"
        )
    advice = "Every retry was used up." if code in THROTTLED else "A retry would not help."
    return ServiceError(f"Scan failed on the {table}. {advice} The service said: {said}")
