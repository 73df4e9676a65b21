"""Calls are signed by the role that was asked for, for as long as a query runs, and no secret
leaves the process that it was given to."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sparkinesis.errors import AccessDeniedError
from sparkinesis.local import Fault, LocalServer
from sparkinesis.stream.calls.session import open_session
from sparkinesis.stream.credentials import CredentialSource
from tests.engine import Query
from tests.streams import put
from tests.sts import RecordedSts, recorded_sts

OWN_KEY = "AKIAOWNKEYOFTHEPROC1"
ROLE = "arn:aws:iam::123456789012:role/team/stream-reader"
EXTERNAL_ID = "external-id-9f2c"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWN_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret-7d1e")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    """Its STS takes a second to start, so these tests share one."""
    with LocalServer(port=0, limits=False, dynamodb=True) as running:
        yield running


@pytest.fixture(scope="module")
def sts(shared: LocalServer) -> Iterator[RecordedSts]:
    with recorded_sts(shared.endpoint_url) as recorded:
        yield recorded


@pytest.fixture
def stream(shared: LocalServer) -> str:
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis = shared.client("kinesis")
    kinesis.create_stream(StreamName=name, ShardCount=1)
    put(kinesis, name, [b"0"])
    shared.kinesis.calls.clear()
    return name


@pytest.fixture
def query(shared: LocalServer, stream: str) -> Callable[..., Query]:
    def make(**options: str) -> Query:
        where = {"streamName": stream, "endpoint": shared.endpoint_url, "region": "us-east-1"}
        return Query(**{**where, "initialPosition": "trim_horizon", **options})

    return make


def signers(server: LocalServer, stream: str) -> set[str | None]:
    """Whose key signed the calls on the stream since the last look."""
    keys = {call.access_key for call in server.kinesis.calls.select(stream=stream)}
    server.kinesis.calls.clear()
    return keys


def rows(query: Query) -> list[bytes]:
    return [row["data"] for batch in query.drain() for row in batch.rows]


def test_the_role_signs_and_is_assumed_once_in_a_process(
    shared: LocalServer, sts: RecordedSts, stream: str, query: Callable[..., Query]
) -> None:
    q = query(
        roleArn=ROLE,
        roleExternalId=EXTERNAL_ID,
        roleSessionName="once",
        stsEndpoint=sts.endpoint_url,
    )
    assert rows(q) == [b"0"]
    put(shared.client("kinesis"), stream, [b"1"])
    shared.kinesis.calls.clear()
    q.restart()
    assert rows(q) == [b"1"]
    (assumed,) = sts.select("once")
    assert assumed.request["RoleArn"] == ROLE
    assert assumed.request["ExternalId"] == EXTERNAL_ID
    assert assumed.signed_by == OWN_KEY
    assert signers(shared, stream) == {assumed.access_key}


def test_a_local_kinesis_is_asked_for_the_role_too(
    shared: LocalServer, stream: str, query: Callable[..., Query]
) -> None:
    assert rows(query(roleArn=ROLE)) == [b"0"]
    (asked,) = shared.kinesis.calls.select("AssumeRole")
    assert asked.access_key == OWN_KEY
    assert OWN_KEY not in signers(shared, stream)


def test_queries_with_other_roles_do_not_share_keys(
    shared: LocalServer, stream: str, query: Callable[..., Query]
) -> None:
    seen = []
    for options in ({"roleArn": ROLE + "-a"}, {"roleArn": ROLE + "-b"}, {}):
        assert rows(query(**options)) == [b"0"]
        seen.append(signers(shared, stream))
    assert seen[2] == {OWN_KEY}
    assert len(set().union(*seen)) == 3


def test_credentials_of_a_role_are_renewed_before_they_expire(
    shared: LocalServer, sts: RecordedSts, stream: str
) -> None:
    later = timedelta()
    source = CredentialSource(None, ROLE, None, "clock", sts.endpoint_url)
    session = open_session(
        source, "us-east-1", shared.endpoint_url, lambda: datetime.now(timezone.utc) + later
    )
    kinesis = session.create_client("kinesis", endpoint_url=shared.endpoint_url)

    def signer() -> str:
        kinesis.list_shards(StreamName=stream)
        (key,) = signers(shared, stream)
        assert key is not None
        return key

    assert sts.access_keys("clock") == []
    first = signer()
    later = timedelta(minutes=44)
    assert signer() == first
    later = timedelta(minutes=46)
    sts.lifetimes["clock"] = 3600.0 + 46 * 60  # its clock is the real one
    second = signer()
    assert sts.access_keys("clock") == [first, second]
    # There are two windows: in the first a refusal is survived, as the key is valid still.
    sts.allowed["clock"] = 2
    later = timedelta(minutes=46 + 46)
    assert signer() == second
    later = timedelta(minutes=46 + 51)
    with pytest.raises(ClientError, match="AssumeRole"):
        signer()
    kinesis.close()


def test_a_query_outlives_its_credentials(
    shared: LocalServer, sts: RecordedSts, stream: str, query: Callable[..., Query]
) -> None:
    # So near to their end that botocore renews them at every use.
    sts.lifetimes["short"] = 60.0
    q = query(roleArn=ROLE, roleSessionName="short", stsEndpoint=sts.endpoint_url)
    used: set[str | None] = set()
    for number in range(3):
        assert rows(q) == [str(number).encode()]
        now = signers(shared, stream)
        assert now <= set(sts.access_keys("short"))
        assert not now & used
        used |= now
        put(shared.client("kinesis"), stream, [str(number + 1).encode()])
        shared.kinesis.calls.clear()


def test_nothing_that_travels_holds_a_secret(sts: RecordedSts, query: Callable[..., Query]) -> None:
    q = query(roleArn=ROLE, roleSessionName="travel", stsEndpoint=sts.endpoint_url)
    start, end = q.plan()
    assert q.read(start, end).rows
    travels = pickle.dumps([q.source, q.reader.partitions(start, end), start, end])
    assert len(sts.select("travel")) == 1
    for secret in (*sts.secrets, "own-secret-7d1e", OWN_KEY):
        assert secret.encode() not in travels


def test_a_refused_role_says_what_its_policies_need(
    sts: RecordedSts, query: Callable[..., Query]
) -> None:
    sts.allowed["refused"] = 0
    where = {"roleArn": ROLE, "roleSessionName": "refused", "stsEndpoint": sts.endpoint_url}
    with pytest.raises(AccessDeniedError) as caught:
        query(**where).plan()
    said = str(caught.value)
    assert f"Not allowed to assume the role {ROLE}" in said
    assert "trust policy must allow sts:AssumeRole" in said
    assert "set the option roleExternalId" in said
    assert "is not authorized to perform: sts:AssumeRole" in said
    assert "\n" not in said
    with pytest.raises(AccessDeniedError, match="must equal the option roleExternalId") as caught:
        query(**where, roleExternalId=EXTERNAL_ID).plan()
    assert EXTERNAL_ID not in str(caught.value)


def test_a_refused_signature_does_not_bring_the_session_token_into_the_error(
    shared: LocalServer, monkeypatch: pytest.MonkeyPatch, query: Callable[..., Query]
) -> None:
    """A service that refuses a signature answers with what it should have been made of."""
    fault = Fault.error(
        "InvalidSignatureException",
        "The request signature we calculated does not match the signature you provided.\n\n"
        "The Canonical String for this request should have been\n'POST\n/\n\n"
        "host:kinesis.eu-west-1.amazonaws.com\nx-amz-security-token:hunter2\n\nhost\n'\n\n"
        "The String-to-Sign should have been\n'AWS4-HMAC-SHA256'\n",
    )
    monkeypatch.setattr(shared.kinesis, "faults", lambda call: fault)
    with pytest.raises(AccessDeniedError) as caught:
        query().plan()
    text = str(caught.value)
    assert "does not match the signature you provided." in text
    assert "hunter2" not in text
    assert "\n" not in text


def test_a_busy_sts_is_asked_again(
    shared: LocalServer, stream: str, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = iter([Fault(code="Throttling", status=400)])
    monkeypatch.setattr(
        shared.kinesis,
        "faults",
        lambda call: next(faults, None) if call.operation == "AssumeRole" else None,
    )
    assert rows(query(roleArn=ROLE, roleSessionName="busy")) == [b"0"]
    errors = [call.error for call in shared.kinesis.calls.select("AssumeRole")]
    assert errors == ["Throttling", None]


def profile(name: str, key: str, file: Path) -> None:
    file.write_text(f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")


def test_a_profile_is_what_signs(
    shared: LocalServer, stream: str, query: Callable[..., Query], tmp_path: Path
) -> None:
    profile("analytics", "AKIAKEYOFTHEPROFILE1", tmp_path / "credentials")
    assert rows(query(profile="analytics")) == [b"0"]
    assert signers(shared, stream) == {"AKIAKEYOFTHEPROFILE1"}


def test_a_role_is_assumed_with_the_profile(
    sts: RecordedSts, query: Callable[..., Query], tmp_path: Path
) -> None:
    profile("base", "AKIAKEYOFTHEPROFILE2", tmp_path / "credentials")
    role: dict[str, Any] = {"roleArn": ROLE, "roleSessionName": "based"}
    assert rows(query(profile="base", stsEndpoint=sts.endpoint_url, **role)) == [b"0"]
    assert [assumed.signed_by for assumed in sts.select("based")] == ["AKIAKEYOFTHEPROFILE2"]


def test_a_missing_profile_is_named_with_the_files_and_may_come_later(
    query: Callable[..., Query], tmp_path: Path
) -> None:
    q = query(profile="analitycs")
    with pytest.raises(AccessDeniedError) as caught:
        q.plan()
    q.restart()
    said = str(caught.value)
    assert "There is no profile 'analitycs'" in said
    assert str(tmp_path / "config") in said
    assert str(tmp_path / "credentials") in said
    profile("analitycs", "AKIAKEYOFTHEPROFILE3", tmp_path / "credentials")
    assert rows(q) == [b"0"]
