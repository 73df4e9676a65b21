"""Calls are signed by the role that was asked for, for as long as a query runs, and no secret
leaves the process that it was given to."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.local import Fault, LocalServer
from tests.engine import Query, query_of
from tests.failing import Failing
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


@dataclass(frozen=True)
class Reading:
    """A stream of its own, which a query reads by credentials of its own."""

    server: LocalServer
    sts: RecordedSts
    stream: str

    def put(self, data: bytes) -> None:
        put(self.server.client("kinesis"), self.stream, [data])
        self.server.kinesis.calls.clear()

    def query(self, **options: str) -> Query:
        return query_of(self.server, self.stream, **options)

    def by_role(self, name: str, **options: str) -> Query:
        """A query whose role is assumed at the recorded STS, in a session of this name."""
        role = {"roleArn": ROLE, "roleSessionName": name, "stsEndpoint": self.sts.endpoint_url}
        return self.query(**role, **options)

    def signers(self) -> set[str | None]:
        """Whose key signed the calls on the stream since the last look."""
        calls = self.server.kinesis.calls
        keys = {call.access_key for call in calls.select(stream=self.stream)}
        calls.clear()
        return keys


@pytest.fixture
def reading(shared: LocalServer, sts: RecordedSts) -> Reading:
    made = Reading(shared, sts, f"s-{uuid.uuid4().hex[:8]}")
    shared.client("kinesis").create_stream(StreamName=made.stream, ShardCount=1)
    made.put(b"0")
    return made


def test_the_role_signs_and_is_assumed_once_in_a_process(reading: Reading) -> None:
    q = reading.by_role("once", roleExternalId=EXTERNAL_ID)
    assert q.rest() == [b"0"]
    reading.put(b"1")
    q.restart()
    assert q.rest() == [b"1"]
    (assumed,) = reading.sts.select("once")
    assert assumed.request["RoleArn"] == ROLE
    assert assumed.request["ExternalId"] == EXTERNAL_ID
    assert assumed.signed_by == OWN_KEY
    assert reading.signers() == {assumed.access_key}


def test_a_local_kinesis_is_asked_for_the_role_too(reading: Reading) -> None:
    assert reading.query(roleArn=ROLE).rest() == [b"0"]
    (asked,) = reading.server.kinesis.calls.select("AssumeRole")
    assert asked.access_key == OWN_KEY
    assert OWN_KEY not in reading.signers()


def test_queries_with_other_roles_do_not_share_keys(reading: Reading) -> None:
    seen = []
    for options in ({"roleArn": ROLE + "-a"}, {"roleArn": ROLE + "-b"}, {}):
        assert reading.query(**options).rest() == [b"0"]
        seen.append(reading.signers())
    assert seen[2] == {OWN_KEY}
    assert len(set().union(*seen)) == 3


def test_a_query_outlives_its_credentials(reading: Reading) -> None:
    # So near to their end that botocore renews them at every use.
    reading.sts.lifetimes["short"] = 60.0
    q = reading.by_role("short")
    used: set[str | None] = set()
    for number in range(3):
        assert q.rest() == [str(number).encode()]
        now = reading.signers()
        assert now <= set(reading.sts.access_keys("short"))
        assert not now & used
        used |= now
        reading.put(str(number + 1).encode())


def test_nothing_that_travels_holds_a_secret(reading: Reading) -> None:
    q = reading.by_role("travel")
    start, end = q.plan()
    assert q.read(start, end).rows
    travels = pickle.dumps([q.source, q.reader.partitions(start, end), start, end])
    assert len(reading.sts.select("travel")) == 1
    for secret in (*reading.sts.secrets, "own-secret-7d1e", OWN_KEY):
        assert secret.encode() not in travels


def test_a_refused_role_says_what_its_policies_need(reading: Reading) -> None:
    reading.sts.allowed["refused"] = 0
    with pytest.raises(AccessDeniedError) as caught:
        reading.by_role("refused").plan()
    said = str(caught.value)
    assert f"Not allowed to assume the role {ROLE}" in said
    assert "trust policy must allow sts:AssumeRole" in said
    assert "set the external id of the role" in said
    assert "is not authorized to perform: sts:AssumeRole" in said
    assert "\n" not in said
    with pytest.raises(AccessDeniedError, match="must equal the external id that is set") as caught:
        reading.by_role("refused", roleExternalId=EXTERNAL_ID).plan()
    assert EXTERNAL_ID not in str(caught.value)


def test_a_refused_signature_does_not_bring_the_session_token_into_the_error(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that refuses a signature answers with what it should have been made of."""
    fault = Fault.error(
        "InvalidSignatureException",
        "The request signature we calculated does not match the signature you provided.\n\n"
        "The Canonical String for this request should have been\n'POST\n/\n\n"
        "host:kinesis.eu-west-1.amazonaws.com\nx-amz-security-token:hunter2\n\nhost\n'\n\n"
        "The String-to-Sign should have been\n'AWS4-HMAC-SHA256'\n",
    )
    monkeypatch.setattr(reading.server.kinesis, "faults", lambda call: fault)
    with pytest.raises(AccessDeniedError) as caught:
        reading.query().plan()
    text = str(caught.value)
    assert "does not match the signature you provided." in text
    assert "hunter2" not in text
    assert "\n" not in text


def test_a_busy_sts_is_asked_again(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Failing("AssumeRole", Fault("Throttling"))
    monkeypatch.setattr(reading.server.kinesis, "faults", busy)
    assert reading.query(roleArn=ROLE, roleSessionName="busy").rest() == [b"0"]
    errors = [call.error for call in reading.server.kinesis.calls.select("AssumeRole")]
    assert errors == ["Throttling", None]


def profile(name: str, key: str, file: Path) -> None:
    file.write_text(f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")


def test_a_profile_is_what_signs(reading: Reading, tmp_path: Path) -> None:
    profile("analytics", "AKIAKEYOFTHEPROFILE1", tmp_path / "credentials")
    assert reading.query(profile="analytics").rest() == [b"0"]
    assert reading.signers() == {"AKIAKEYOFTHEPROFILE1"}


def test_a_role_is_assumed_with_the_profile(reading: Reading, tmp_path: Path) -> None:
    profile("base", "AKIAKEYOFTHEPROFILE2", tmp_path / "credentials")
    assert reading.by_role("based", profile="base").rest() == [b"0"]
    assert [assumed.signed_by for assumed in reading.sts.select("based")] == [
        "AKIAKEYOFTHEPROFILE2"
    ]


def test_a_missing_profile_is_named_with_the_files_and_may_come_later(
    reading: Reading, tmp_path: Path
) -> None:
    q = reading.query(profile="analitycs")
    with pytest.raises(AccessDeniedError) as caught:
        q.plan()
    q.restart()
    said = str(caught.value)
    assert "There is no profile 'analitycs'" in said
    assert str(tmp_path / "config") in said
    assert str(tmp_path / "credentials") in said
    profile("analitycs", "AKIAKEYOFTHEPROFILE3", tmp_path / "credentials")
    assert q.rest() == [b"0"]
