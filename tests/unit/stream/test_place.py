"""The place of a stream as errors and log lines name it: the region, and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoRegionError

from sparkinesis.errors import StreamNotFoundError
from sparkinesis.lease.table.calls import explain as explain_table
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    StreamAddress,
    StreamIdentifier,
    address_of,
    stream_address,
)
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.session import open_client

LOCAL = "http://127.0.0.1:4566"


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration file, and no environment variable that chooses a region."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    file.write_text("[profile dev]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    return file


def test_a_region_that_is_given_is_named_alone() -> None:
    assert str(StreamAddress("s", region="eu-west-1")) == "stream 's' in eu-west-1"
    address = StreamAddress("s", region="eu-west-1", endpoint=LOCAL)
    assert str(address) == f"stream 's' in eu-west-1 at {LOCAL}"


def test_a_stream_with_an_arn_is_named_with_its_account() -> None:
    """Streams of two accounts may have one name, and one application may read both."""
    one, other = (
        stream_address(f"arn:aws:kinesis:eu-west-1:{account}:stream/flights")
        for account in ("123456789012", "210987654321")
    )
    assert str(one) == "stream 'flights' of account 123456789012 in eu-west-1"
    assert str(other) == "stream 'flights' of account 210987654321 in eu-west-1"
    named = address_of(StreamIdentifier("210987654321", "flights", 1), "eu-west-1", LOCAL)
    assert str(named) == f"stream 'flights' of account 210987654321 in eu-west-1 at {LOCAL}"


@pytest.mark.parametrize(
    ("variables", "region", "source"),
    [
        ({"AWS_REGION": "eu-west-1"}, "eu-west-1", "environment variable AWS_REGION"),
        (
            {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-2", "AWS_PROFILE": "dev"},
            "eu-west-1",
            "environment variable AWS_REGION",
        ),
        (
            {"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-2"},
            "us-east-2",
            "environment variable AWS_DEFAULT_REGION",
        ),
        ({"AWS_REGION": "", "AWS_PROFILE": "dev"}, "eu-north-1", "profile 'dev'"),
    ],
    ids=["alone", "first-of-all", "empty", "empty-with-profile"],
)
def test_clients_take_the_region_from_either_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], region: str, source: str
) -> None:
    """As AWS's command line: most SDKs read AWS_REGION, which containers often have."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for service in ("kinesis", "dynamodb"):
        assert open_client(service, FOUND_BY_BOTO, None, None).meta.region_name == region
    assert str(StreamAddress("s")).startswith(f"stream 's' in {region} (from the {source}")
    stream = StreamIdentifier("123456789012", "s", 1)
    assert address_of(stream).region == region


def test_an_error_without_a_region_names_the_variable() -> None:
    told = explain(NoRegionError(), "ListShards", StreamAddress("s"), None, None)
    assert "No region is set for stream 's'" in str(told)
    assert "or the environment variable AWS_REGION" in str(told)
    table = explain_table(NoRegionError(), "Scan", TableAddress("app"))
    assert "Set the region, for instance to eu-west-1, or the environment variable AWS_REGION." in (
        str(table)
    )


def test_a_region_of_a_profile_is_named_with_its_file(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    told = f"in eu-north-1 (from the profile 'dev' in {config})"
    dev = CredentialSource(profile="dev")
    assert str(StreamAddress("s", credentials=dev)) == f"stream 's' {told}"
    assert str(TableAddress("app", credentials=dev)) == f"lease table 'app' {told}"
    monkeypatch.setenv("AWS_PROFILE", "dev")
    assert str(StreamAddress("s")) == f"stream 's' {told}"


def test_no_region_and_no_profile_are_told() -> None:
    assert str(StreamAddress("s")) == "stream 's' in an unknown region (none set)"
    local = StreamAddress("s", endpoint=LOCAL)
    assert str(local) == f"stream 's' in us-east-1 (the default of a local endpoint) at {LOCAL}"
    none = StreamAddress("s", credentials=CredentialSource(profile="none"))
    assert str(none) == "stream 's' in an unknown region (the profile cannot be read)"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            StreamAddress("s", region="eu-west-1", is_querys=True),
            "There is no stream 's' in eu-west-1. The region is that of the option region. Check",
        ),
        (
            StreamAddress("s", arn="arn:aws:kinesis:eu-west-1:1:stream/s", region="eu-west-1"),
            "There is no stream 's' of account 1 in eu-west-1. The region is that of the stream's",
        ),
        (
            StreamAddress("s", credentials=CredentialSource(profile="dev")),
            "There is no stream 's' in eu-north-1 (from the profile 'dev' in ",
        ),
    ],
)
def test_a_missing_stream_is_told_with_the_source_of_its_region(
    address: StreamAddress, said: str
) -> None:
    error = ClientError(
        {"Error": {"Code": "ResourceNotFoundException", "Message": "not found"}}, "ListShards"
    )
    told = explain(error, "ListShards", address, None, None)
    assert isinstance(told, StreamNotFoundError)
    assert str(told).startswith(said)
    assert "default region" not in str(told)


def test_an_endpoint_that_does_not_answer_names_the_options() -> None:
    error = EndpointConnectionError(endpoint_url="https://kinesis.eu-wset-1.amazonaws.com")
    address = StreamAddress("s", region="eu-wset-1", is_querys=True)
    told = explain(error, "ListShards", address, None, None)
    assert "does not answer. Check the spelling of the options region, endpoint" in str(told)
