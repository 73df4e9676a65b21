"""The source of credentials as a value, and the errors when they cannot be loaded."""

from __future__ import annotations

import pickle

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from sparkinesis.errors import AccessDeniedError, ServiceError, SparkinesisError
from sparkinesis.stream.address import StreamAddress, is_loopback
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.credentials import CredentialSource

ROLE = "arn:aws:iam::123456789012:role/reader"
SOURCE = CredentialSource("analytics", ROLE, "external-id-1", "me", "https://sts.example")


def test_a_source_travels_whole_and_keeps_its_external_id_to_itself() -> None:
    address = StreamAddress("flights", credentials=SOURCE)
    again = pickle.loads(pickle.dumps(address))
    assert again == address
    assert hash(again) == hash(address)
    assert again.credentials.external_id == "external-id-1"
    assert "external-id-1" not in f"{address!r} {address} {SOURCE} {SOURCE!r}"


def test_sources_that_differ_in_the_external_id_only_are_not_the_same() -> None:
    assert CredentialSource(None, ROLE, "one") != CredentialSource(None, ROLE, "two")


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://127.0.0.1:4566", True),
        ("http://127.8.0.1", True),
        ("http://localhost:4566/", True),
        ("http://[::1]:4566", True),
        ("https://kinesis.eu-west-1.amazonaws.com", False),
        ("http://127.0.0.1.example.com", False),
        (None, False),
    ],
)
def test_which_endpoints_are_local(url: str | None, is_local: bool) -> None:
    assert is_loopback(url) is is_local


def refusal(code: str, operation: str = "AssumeRole", status: int = 403) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        operation,
    )


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (refusal("AccessDenied"), AccessDeniedError, "of the profile analytics"),
        (refusal("InvalidClientTokenId"), AccessDeniedError, "STS refuses the request to assume"),
        (refusal("RegionDisabledException"), AccessDeniedError, "the option region (or"),
        (refusal("Throttling", status=400), ServiceError, "every retry was used up"),
        (refusal("InternalFailure", status=500), ServiceError, "can reach STS"),
        (NoCredentialsError(), AccessDeniedError, "No AWS credentials were found"),
        (
            PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            AccessDeniedError,
            "cannot be loaded",
        ),
        (refusal("AccessDeniedException", "GetRecords"), AccessDeniedError, "kinesis:GetRecords"),
        (ReadTimeoutError(endpoint_url="https://x"), ServiceError, "Every retry was used up"),
    ],
)
def test_errors_of_credentials_say_what_to_do(
    error: ClientError | BotoCoreError, kind: type[SparkinesisError], said: str
) -> None:
    address = StreamAddress("flights", credentials=SOURCE)
    told = explain(error, "GetRecords", address, "shardId-0", None)
    assert type(told) is kind
    assert said in str(told)
    assert "GetRecords" in str(told)
    assert "on shard shardId-0 of stream 'flights'" in str(told)
    assert "external-id-1" not in str(told)
