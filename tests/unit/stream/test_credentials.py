"""The source of credentials as a value, and the errors when they cannot be loaded."""

from __future__ import annotations

import pickle
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)

from sparkinesis.errors import AccessDeniedError, ServiceError, SparkinesisError
from sparkinesis.lease.table.calls import explain as explain_table
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.address import CredentialSource, StreamAddress, is_loopback
from sparkinesis.stream.calls.explain import explain, spark_is_at_work

ROLE = "arn:aws:iam::123456789012:role/reader"
SOURCE = CredentialSource("analytics", ROLE, "external-id-1", "me", "https://sts.example")


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a session of Spark that other tests of this process have."""
    for module in ("pyspark.worker_util", "pyspark.core.context"):
        monkeypatch.delitem(sys.modules, module, raising=False)


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
        (refusal("RegionDisabledException"), AccessDeniedError, "the region (or"),
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


@pytest.mark.parametrize(
    ("code", "message", "cause"),
    [
        ("ExpiredTokenException", "m", "The credentials have expired"),
        ("ExpiredToken", "m", "The credentials have expired"),
        ("UnrecognizedClientException", "m", "The credentials are not valid"),
        ("InvalidClientTokenId", "m", "The credentials are not valid"),
        ("MissingAuthenticationTokenException", "m", "The credentials are not valid"),
        ("InvalidSignatureException", "It does not match.", "The secret of the credentials is"),
        ("SignatureDoesNotMatch", "It does not match.", "The secret of the credentials is wrong"),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier", "The clock of this"),
        ("SignatureDoesNotMatch", "Signature not yet current: 2 is still", "The clock of this"),
        ("RequestTimeTooSkewed", "m", "The clock of this machine is wrong"),
    ],
)
def test_a_refusal_of_the_credentials_begins_with_its_cause_and_asks_for_no_permission(
    code: str, message: str, cause: str
) -> None:
    error = refusal(code, "Scan", 400)
    error.response["Error"]["Message"] = message
    for told in (
        explain(error, "GetRecords", StreamAddress("flights"), "shardId-0", None),
        explain_table(error, "Scan", TableAddress("app", "us-east-1")),
    ):
        assert type(told) is AccessDeniedError
        text = str(told)
        assert text.startswith(cause)
        assert not [word for word in ("kinesis:", "dynamodb:", "executor") if word in text]
        assert text.endswith(f"The service said: {code}: {message}")


@pytest.mark.parametrize(
    ("code", "message", "cause"),
    [
        ("ExpiredToken", "m", "The credentials have expired, so AssumeRole of "),
        ("SignatureDoesNotMatch", "Signature expired: 1", "The clock of this machine is wrong"),
    ],
)
def test_so_does_a_refusal_of_the_role(code: str, message: str, cause: str) -> None:
    error = refusal(code)
    error.response["Error"]["Message"] = message
    told = explain(error, "GetRecords", StreamAddress("flights", credentials=SOURCE), None, None)
    assert type(told) is AccessDeniedError
    assert str(told).startswith(cause)
    assert ROLE in str(told)


def test_a_missing_permission_is_asked_for() -> None:
    error = refusal("AccessDeniedException", "Scan", 400)
    told = explain_table(error, "Scan", TableAddress("app", "us-east-1"))
    assert str(told).startswith("Not allowed to call Scan on the lease table 'app'")
    assert "dynamodb:Scan" in str(told)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (CredentialSource("mine"), "'mine' .*the option profile"),
        (CredentialSource(), "'theirs' .*the environment variable AWS_PROFILE"),
    ],
)
def test_a_missing_profile_has_its_name(source: CredentialSource, named: str) -> None:
    error = ProfileNotFound(profile=source.profile or "theirs")
    told = explain(error, "GetRecords", StreamAddress("flights", credentials=source), None, None)
    assert re.match(f"There is no profile {named}", str(told))
    assert "executor" not in str(told)


def test_machines_of_spark_are_named_where_spark_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = StreamAddress("flights")
    for is_at_work in (False, True):
        told = str(explain(NoCredentialsError(), "GetRecords", address, None, None))
        assert ("on the driver and on every executor" in told) is is_at_work
        monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)


def test_a_driver_is_known_by_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    class SparkContext:
        _active_spark_context: object | None = None

    module = SimpleNamespace(SparkContext=SparkContext)
    monkeypatch.setitem(sys.modules, "pyspark.core.context", cast("ModuleType", module))
    assert not spark_is_at_work()
    SparkContext._active_spark_context = object()
    assert spark_is_at_work()
