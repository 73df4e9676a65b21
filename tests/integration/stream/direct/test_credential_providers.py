"""Credentials of botocore's providers sign direct calls, and are renewed for them.

Botocore finds them all in one way; of its providers, three stand for the others.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.integration.stream.direct.both import FINE, clients, outcome
from tests.integration.stream.direct.raw_server import RawServer, Request

ROLE = "arn:aws:iam::123456789012:role/reader"


@dataclass
class Authority:
    """Stands for the agent of a container and STS; counts what it gave."""

    url: str = ""
    given: int = 0
    lifetime: timedelta = timedelta(minutes=5)
    """botocore renews credentials that expire within ten minutes before each call."""
    paths: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    authority: Authority

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.authority.paths.append(self.path)
        number, expires = self._next()
        found = {
            "AccessKeyId": f"key{number}",
            "SecretAccessKey": f"secret{number}",
            "Token": f"token{number}",
            "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._send("application/json", json.dumps(found))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        action = re.search(r"Action=(\w+)", body)
        assert action, body
        self.authority.paths.append(action[1])
        number, expires = self._next()
        self._send(
            "text/xml",
            f"<{action[1]}Response><{action[1]}Result><Credentials>"
            f"<AccessKeyId>key{number}</AccessKeyId>"
            f"<SecretAccessKey>secret{number}</SecretAccessKey>"
            f"<SessionToken>token{number}</SessionToken>"
            f"<Expiration>{expires.isoformat()}</Expiration>"
            f"</Credentials></{action[1]}Result></{action[1]}Response>",
        )

    def _next(self) -> tuple[int, datetime]:
        self.authority.given += 1
        return self.authority.given, datetime.now(timezone.utc) + self.authority.lifetime

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def authority() -> Iterator[Authority]:
    found = Authority()

    class Handler(_Handler):
        authority = found

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class User:
    """What a user sets up on a machine."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    authority: Authority

    def set(self, **environment: str) -> None:
        for name, value in environment.items():
            self.monkeypatch.setenv(name, value)

    def write(self, config: str) -> None:
        (self.folder / "config").write_text(config)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority) -> User:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = User(tmp_path, monkeypatch, authority)
    found.set(
        AWS_CONFIG_FILE=str(tmp_path / "config"),
        AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "none"),
        AWS_EC2_METADATA_DISABLED="true",
        HOME=str(tmp_path),
    )
    return found


def container(user: User) -> None:
    user.set(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{user.authority.url}/container")


def role_of_a_profile(user: User) -> None:
    user.set(AWS_ENDPOINT_URL_STS=user.authority.url)
    user.write(
        f"[default]\nrole_arn = {ROLE}\nsource_profile = base\n"
        "[profile base]\naws_access_key_id = base\naws_secret_access_key = s\n"
    )


def program(user: User) -> None:
    file = user.folder / "credentials"
    file.write_text(
        f"#!{sys.executable}\n"
        "import json, urllib.request\n"
        f"given = json.load(urllib.request.urlopen({user.authority.url + '/program'!r}))\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': given['AccessKeyId'],\n"
        "    'SecretAccessKey': given['SecretAccessKey'], 'SessionToken': given['Token'],\n"
        "    'Expiration': given['Expiration']}))\n"
    )
    file.chmod(0o755)
    user.write(f"[default]\ncredential_process = {file}\n")


PROVIDERS: dict[str, tuple[Callable[[User], None], str]] = {
    "container": (container, "/container"),
    "role of a profile": (role_of_a_profile, "AssumeRole"),
    "program": (program, "/program"),
}


def check_signature(request: Request) -> int:
    """Check the signature by botocore; return the number of the credentials that it was made by."""
    headers = request.headers
    found = re.search(
        r"Credential=key(\d+)/.*SignedHeaders=([a-z0-9;-]+),", headers["authorization"]
    )
    assert found, headers
    number = int(found[1])
    assert headers["x-amz-security-token"] == f"token{number}"
    keys = Credentials(f"key{number}", f"secret{number}", f"token{number}")
    signed = AWSRequest(
        "POST",
        f"http://{headers['host']}/",
        {name: headers[name] for name in found[2].split(";") if name != "host"},
        request.body,
    )
    signed.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(keys, "kinesis", "us-east-1")
    text = auth.string_to_sign(signed, auth.canonical_request(signed))
    assert headers["authorization"].endswith(f"Signature={auth.signature(text, signed)}")
    return number


@pytest.mark.parametrize("provider", PROVIDERS)
def test_credentials_that_expire_soon_are_renewed_for_each_call(
    server: RawServer, user: User, provider: str
) -> None:
    set_up, path = PROVIDERS[provider]
    set_up(user)
    plain, direct = clients(server.endpoint)
    with closing(plain), closing(direct):
        server.behaviours.extend([FINE] * 5)
        for client in (plain, plain, direct, direct, direct):
            assert outcome(client, "kinesis")[1] == 200
    assert any(asked.startswith(path) for asked in user.authority.paths)
    numbers = [check_signature(request) for request in server.requests]
    assert numbers == sorted(set(numbers)), "each call has newer ones"
    by_botocore = ["amz-sdk-request" in request.headers for request in server.requests]
    assert by_botocore == [True, True, False, False, False]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_credentials_that_last_are_kept(server: RawServer, user: User, provider: str) -> None:
    user.authority.lifetime = timedelta(hours=6)
    PROVIDERS[provider][0](user)
    _, direct = clients(server.endpoint)
    with closing(direct):
        server.behaviours.extend([FINE] * 3)
        for _ in range(3):
            assert outcome(direct, "kinesis")[1] == 200
    assert len({check_signature(request) for request in server.requests}) == 1


def test_a_provider_that_fails_at_a_renewal_is_an_error_of_botocore(
    server: RawServer, user: User
) -> None:
    program(user)
    found = []
    for client in clients(server.endpoint):
        server.behaviours.append(FINE)
        assert outcome(client, "kinesis")[1] == 200
        (user.folder / "credentials").chmod(0o755)
        (user.folder / "credentials").write_text(f"#!{sys.executable}\nraise SystemExit(3)\n")
        found.append(outcome(client, "kinesis"))
        program(user)
    assert found[0] == found[1] == ("CredentialRetrievalError", False, False)


@pytest.mark.parametrize("token", ["a\r\nx: b", "a\nb", "\N{EURO SIGN}"])
def test_a_token_that_is_no_header_is_not_sent(server: RawServer, user: User, token: str) -> None:
    user.set(AWS_ACCESS_KEY_ID="base", AWS_SECRET_ACCESS_KEY="s", AWS_SESSION_TOKEN=token)
    _, direct = clients(server.endpoint)
    assert outcome(direct, "kinesis") == ("HTTPClientError", True, True)
    assert server.requests == []


def test_without_credentials_botocore_says_so(user: User) -> None:
    found = [outcome(client, "kinesis") for client in clients("http://kinesis.test")]
    assert found[0] == found[1] == ("NoCredentialsError", False, False)
