"""The place of a stream as errors and log lines name it: the region, and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from sparkinesis.errors import StreamNotFoundError
from sparkinesis.lease.table.address import TableAddress
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.credentials import CredentialSource

LOCAL = "http://127.0.0.1:4566"


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration file, and no environment variable that chooses a region."""
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    file.write_text("[profile dev]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    return file


def test_a_region_that_is_given_is_named_alone() -> None:
    assert str(StreamAddress("s", region="eu-west-1")) == "stream 's' in eu-west-1"
    address = StreamAddress("s", region="eu-west-1", endpoint=LOCAL)
    assert str(address) == f"stream 's' in eu-west-1 at {LOCAL}"


def test_a_region_of_the_environment_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    source = "from the environment variable AWS_DEFAULT_REGION"
    assert str(StreamAddress("s")) == f"stream 's' in eu-west-1 ({source})"
    # botocore prefers the variable to a profile.
    address = StreamAddress("s", endpoint=LOCAL, credentials=CredentialSource(profile="dev"))
    assert str(address) == f"stream 's' in eu-west-1 ({source}) at {LOCAL}"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert str(StreamAddress("s")) == f"stream 's' in eu-west-2 ({source})"


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
            StreamAddress("s", region="eu-west-1"),
            "There is no stream 's' in eu-west-1. The region is that of the option region. Check",
        ),
        (
            StreamAddress("s", arn="arn:aws:kinesis:eu-west-1:1:stream/s", region="eu-west-1"),
            "There is no stream 's' in eu-west-1. The region is that of the stream's ARN. Check",
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
