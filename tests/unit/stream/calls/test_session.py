"""Sessions of botocore, which the clients of a process share."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.calls import session as sessions
from sparkinesis.stream.calls.session import open_client, open_session

ENDPOINT = "http://127.0.0.1:9"
THREADS = 8


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def test_clients_of_one_source_share_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(profile: str | None = None) -> Any:
        made.append(profile)
        return new_session(profile)

    new_session = sessions.new_session
    monkeypatch.setattr(sessions, "new_session", counted)
    source = CredentialSource(session_name="shared")
    clients = [
        open_client(service, source, "us-east-1", ENDPOINT) for service in ("kinesis", "dynamodb")
    ]
    assert len(made) == 1
    keys = [client._request_signer._credentials for client in clients]
    assert keys[0] is keys[1]


def test_threads_that_ask_at_once_get_one_session() -> None:
    all_ask = threading.Barrier(THREADS)
    source = CredentialSource(session_name="at-once")

    def ask(_: int) -> Any:
        all_ask.wait()
        return open_session(source, "us-east-1", ENDPOINT)

    with ThreadPoolExecutor(THREADS) as threads:
        assert len(set(map(id, threads.map(ask, range(THREADS))))) == 1


@pytest.mark.parametrize(
    "other",
    [
        (FOUND_BY_BOTO, "eu-west-1", ENDPOINT),
        (FOUND_BY_BOTO, "us-east-1", None),
        (CredentialSource(session_name="other"), "us-east-1", ENDPOINT),
    ],
)
def test_other_regions_endpoints_and_roles_have_sessions_of_their_own(other: Any) -> None:
    assert open_session(*other) is not open_session(FOUND_BY_BOTO, "us-east-1", ENDPOINT)


def test_another_environment_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_session(FOUND_BY_BOTO, "us-east-1", ENDPOINT)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    second = open_session(FOUND_BY_BOTO, "us-east-1", ENDPOINT)
    assert [each.get_credentials().access_key for each in (first, second)] == ["first", "second"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    assert open_session(FOUND_BY_BOTO, "us-east-1", ENDPOINT) is first


def test_what_tells_environments_apart_holds_no_secret() -> None:
    assert isinstance(sessions._environment(), int)


def test_a_process_that_was_forked_while_a_client_opened_opens_its_own() -> None:
    context = multiprocessing.get_context("fork")
    with sessions._opening:
        child = context.Process(
            target=open_client, args=("sts", FOUND_BY_BOTO, "us-east-1", ENDPOINT)
        )
        child.start()
        child.join(60)
        code = child.exitcode
        child.kill()
    assert code == 0
