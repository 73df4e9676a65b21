"""Which connection a direct call takes, and what it leaves behind."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.credentials import ReadOnlyCredentials

from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.stream.address import CredentialSource
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from tests.certificates import self_signed, serving_context
from tests.integration.stream.direct.both import BODY, FINE, SERVICES, clients, outcome
from tests.integration.stream.direct.raw_server import Behaviour, RawServer, http, serving

PATIENCE = 20.0
REFUSED = http(b'{"__type":"ValidationException","message":"no"}', "400 Bad Request")


pytestmark = pytest.mark.usefixtures("credentials")


def idle(direct: Any) -> list[socket.socket]:
    (connections,) = direct._pools.by_url.values()
    return list(connections._idle)


ANSWERS: dict[str, tuple[Behaviour, Any]] = {
    "of a length": (http(BODY), "7"),
    "in chunks": (http(BODY, chunked=True), "7"),
    "without a body": (http(b"", "204 No Content"), "JSONDecodeError"),
    "an error": (REFUSED, "ValidationException"),
    "an error in chunks": (
        http(b'{"__type":"ValidationException"}', "400 Bad Request", chunked=True),
        "ValidationException",
    ),
}


@pytest.mark.parametrize("at", [0, 9, -2], ids=["at once", "in the head", "before the end"])
@pytest.mark.parametrize("kind", ANSWERS)
def test_bytes_behind_an_answer_in_a_record_of_tls_are_no_answer_to_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, at: int
) -> None:
    """The end of the answer and the bytes behind it are one record: TLS decrypts all of it."""
    answer, expected = ANSWERS[kind]
    others = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"ShardIterator": "no"}'

    def send(connection: socket.socket) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            answer(theirs)
            whole = ours.recv(65_536)
        for record in filter(None, (whole[:at], whole[at:] + others)):
            connection.sendall(record)
        return True

    file = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    with serving(serving_context(file)) as server:
        _, direct = clients(server.endpoint, read_timeout=PATIENCE)
        with closing(direct):
            server.behaviours.extend([send, FINE])
            assert outcome(direct, "kinesis")[0] == expected
            assert outcome(direct, "kinesis")[:2] == ("7", 200)
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_interim_answer_is_not_the_answer(
    server: RawServer, direct: DirectClient, *, is_streamed: bool
) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    direct._streamed = frozenset({"GetShardIterator"} if is_streamed else ())

    def answer(connection: socket.socket) -> bool:
        connection.sendall(interim)
        return REFUSED(connection)

    server.behaviours.append(answer)
    assert outcome(direct, "kinesis")[1] == "ValidationException"
    assert is_streamed or len(idle(direct)) == 1


def test_a_process_that_was_forked_has_connections_of_its_own(
    server: RawServer, direct: DirectClient
) -> None:
    server.behaviours.extend([FINE] * 3)
    assert outcome(direct, "kinesis")[1] == 200
    child = os.fork()
    if child == 0:
        os._exit(0 if outcome(direct, "kinesis")[1] == 200 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert outcome(direct, "kinesis")[1] == 200
    assert [request.connection for request in server.requests] == [1, 2, 1]


def test_a_connection_belongs_to_one_call_at_a_time_and_a_few_are_kept(server: RawServer) -> None:
    _, direct = clients(server.endpoint, read_timeout=PATIENCE)
    threads = 7
    all_asked = threading.Barrier(threads)

    def answer(connection: socket.socket) -> bool:
        all_asked.wait(PATIENCE)
        return FINE(connection)

    with closing(direct), ThreadPoolExecutor(threads) as pool:
        for _ in range(2):
            server.behaviours.extend([answer] * threads)
            found = list(pool.map(lambda _: outcome(direct, "kinesis")[1], range(threads)))
            assert found == [200] * threads
            assert len(idle(direct)) == 4, "as many as the client was told to keep"
    assert len({request.connection for request in server.requests[:threads]}) == threads
    assert len({request.connection for request in server.requests}) == 2 * threads - 4


ANOTHER = "arn:aws:{}:us-east-1:222222222222:{}/{}"


@pytest.mark.parametrize(
    ("service", "parameter", "values"),
    [
        ("kinesis", "StreamARN", [ANOTHER.format("kinesis", "stream", name) for name in "st"]),
        ("dynamodb", "TableName", ["t", ANOTHER.format("dynamodb", "table", "t")]),
        ("dynamodb", None, ["111111111111", "222222222222"]),
    ],
    ids=["stream", "table", "credentials"],
)
def test_another_account_may_have_another_endpoint(
    server: RawServer,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    parameter: str | None,
    values: list[str],
) -> None:
    """botocore finds the endpoint of an account: it prepares the first call of each."""
    monkeypatch.setenv("AWS_ENDPOINT_DISCOVERY_ENABLED", "false")  # a setting for botocore
    _, direct = clients(server.endpoint, service)
    prepared: list[None] = []
    direct.meta.events.register(f"request-created.{service}", lambda **_: prepared.append(None))
    method, request = SERVICES[service]
    with closing(direct):
        server.behaviours.extend([FINE] * 4)
        for value in values * 2:
            keys = ReadOnlyCredentials("a", "b", None, None if parameter else value)
            direct._credentials = Mock(**{"get_frozen_credentials.return_value": keys})
            own = {} if parameter is None else {parameter: value}
            getattr(direct, method)(**{**request, **own})
    assert len(prepared) == 2


def test_where_the_user_wants_endpoints_to_be_discovered_botocore_makes_the_calls(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_DISCOVERY_ENABLED", "true")
    for service in SERVICES:
        _, direct = clients(server.endpoint, service)
        with closing(direct):
            server.behaviours.append(FINE)
            assert outcome(direct, service)[1] == 200
    by_botocore = ["amz-sdk-request" in request.headers for request in server.requests]
    assert by_botocore == [service == "dynamodb" for service in SERVICES]


def test_an_answer_that_is_no_json_is_retryable(server: RawServer) -> None:
    client = dynamodb_client("us-east-1", server.endpoint, CredentialSource())
    server.behaviours.extend([http(b"<html>log in</html>"), http(b"[]")])
    for _ in range(2):
        assert outcome(client, "dynamodb") == ("MisunderstoodError", True, True)
