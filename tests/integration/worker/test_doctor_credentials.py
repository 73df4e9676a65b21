"""What the doctor says of credentials, with a real STS and one that refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.monitor.doctor.examination import credentials, region
from sparkinesis.monitor.doctor.judge import State
from sparkinesis.stream.address import StreamAddress
from tests.answering import answering

ON_AWS = StreamAddress("s", None, "us-east-1")
EXPIRED = (
    b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
    b"<Code>ExpiredToken</Code><Message>The security token included in the request is expired"
    b"</Message></Error></ErrorResponse>"
)


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor an instance have credentials or a region."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def test_sts_says_whose_they_are(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint_url)
    (found,) = credentials(ON_AWS)
    assert found.state is State.OK
    assert found.what.startswith("found by env: arn:aws:sts::")


def test_credentials_that_sts_refuses_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda headers, body: (403, EXPIRED), "text/xml") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        (found,) = credentials(ON_AWS)
    assert found.state is State.PROBLEM
    assert "ExpiredToken" in found.what
    assert "Renew them" in found.mend


def test_an_sts_that_does_not_answer_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda headers, body: (403, EXPIRED), "text/xml") as gone:
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", gone)
    (found,) = credentials(ON_AWS)
    assert found.state is State.NOTE
    assert "STS does not answer" in found.what


@pytest.mark.usefixtures("no_files")
def test_no_credentials_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (found,) = credentials(ON_AWS)
    assert found.state is State.PROBLEM
    assert "AWS_ACCESS_KEY_ID" in found.mend
    (local,) = credentials(StreamAddress("s", None, "us-east-1", "http://127.0.0.1:4567"))
    assert local.state is State.OK
    assert "none are needed" in local.what


@pytest.mark.usefixtures("no_files")
def test_a_region_is_told_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert region(ON_AWS).what == "us-east-1, as given by --region"
    nowhere = StreamAddress("s", None, None)
    assert region(nowhere).state is State.PROBLEM
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert region(nowhere).what == "eu-west-1, from the environment variable AWS_REGION"
