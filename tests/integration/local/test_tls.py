"""The local server with a certificate: every protocol over TLS, and none without it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ConnectionClosedError

from sparkinesis.local import Fault, LocalServer, LocalServerError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from tests.certificates import self_signed
from tests.http2 import Http2Client, connected
from tests.integration.local.conftest import once, records
from tests.integration.local.test_command import MODULE, ended, start
from tests.integration.local.test_http1 import answer, head

SHARD = "shardId-000000000000"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path)


@pytest.fixture
def server(certificate: Path) -> Iterator[LocalServer]:
    with LocalServer(certificate=certificate, limits=False) as running:
        running.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
        yield running


def trusting(certificate: Path, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(protocols)
    return context


def test_all_of_aws_is_there_over_tls(server: LocalServer) -> None:
    assert server.endpoint_url.startswith("https://127.0.0.1:")
    once(server, "kinesis").put_record(StreamName="s", Data=b"1", PartitionKey="k")
    assert records(server) == [b"1"]
    assert once(server, "sts").get_caller_identity()["Account"] == "123456789012"
    assert once(server, "dynamodb").list_tables()["TableNames"] == []


def test_a_large_page_arrives_whole(
    server: LocalServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    kinesis = once(server, "kinesis")
    data = [bytes([number]) * 1_000_000 for number in range(9)]
    for each in data:
        kinesis.put_record(StreamName="s", Data=each, PartitionKey="k")
    client = StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))
    page = client.get_records(SHARD, client.shard_iterator(SHARD, TRIM_HORIZON), 10_000)
    assert [record.data for record in page.page.records] == data


@pytest.mark.parametrize("asked", [("h2",), ("h2", "http/1.1")])
def test_http_2_is_chosen_by_alpn(
    server: LocalServer, certificate: Path, asked: tuple[str, ...]
) -> None:
    with Http2Client(server.endpoint_url, tls=trusting(certificate, *asked)) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.selected_alpn_protocol() == "h2"
        found = client.call("ListStreams")
        assert (found.status, json.loads(found.body)["StreamNames"]) == (200, ["s"])


@pytest.mark.parametrize(("scheme", "status"), [("https", 200), ("http", 403)])
def test_the_servers_own_origin_is_one_of_https(
    server: LocalServer, certificate: Path, scheme: str, status: int
) -> None:
    place = urlsplit(server.endpoint_url).netloc
    body = b"{}"
    request = head("ListStreams", body, Host=place, Origin=f"{scheme}://{place}") + body
    with trusting(certificate).wrap_socket(
        connected(server.endpoint_url), server_hostname="127.0.0.1"
    ) as sock:
        sock.sendall(request)
        assert answer(sock)[0] == status


def test_a_client_without_tls_gets_no_answer(server: LocalServer) -> None:
    with connected(server.endpoint_url) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in sock.recv(1000)


def test_a_dropped_connection(server: LocalServer) -> None:
    kinesis = once(server, "kinesis")
    server.kinesis.faults = lambda _: Fault.dropped("after")
    with pytest.raises(ConnectionClosedError):
        kinesis.put_record(StreamName="s", Data=b"a", PartitionKey="k")
    server.kinesis.faults = None
    assert records(server) == [b"a"]


@pytest.mark.filterwarnings("error")
def test_it_stops_while_a_client_says_nothing(certificate: Path) -> None:
    """Neither a connection without its handshake nor one without a request is left open."""
    with LocalServer(certificate=certificate) as server:
        silent = connected(server.endpoint_url)
        idle = trusting(certificate).wrap_socket(
            connected(server.endpoint_url), server_hostname="127.0.0.1"
        )
    for sock in (silent, idle):
        assert is_ended(sock)
        sock.close()


def is_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "nothing.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LocalServerError, match=r"nothing\.pem cannot serve TLS \(.+\): give a PEM"):
        LocalServer(certificate=file)


def test_the_command_serves_tls_and_says_how_to_trust_it(certificate: Path) -> None:
    with start(MODULE, "--port", "0", "--certificate", str(certificate)) as process:
        with ended(process):
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("https://")
            with connected(url) as sock:
                trusting(certificate).wrap_socket(sock, server_hostname="127.0.0.1").close()
        assert f"export AWS_CA_BUNDLE={certificate}" in process.stdout.read()


def test_the_command_says_what_is_wrong_with_a_certificate(tmp_path: Path) -> None:
    command = [*MODULE, "--certificate", str(tmp_path / "none.pem")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot serve TLS" in done.stderr
