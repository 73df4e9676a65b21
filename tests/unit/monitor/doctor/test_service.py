"""Whether an endpoint can be reached, with real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkinesis.fleet.channel_tls import DriverIdentity
from sparkinesis.monitor.doctor.judge import State
from sparkinesis.monitor.doctor.service import reach


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port whose connections are accepted, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def tls_server() -> Iterator[int]:
    """A TLS server with a certificate that nobody has signed."""
    context = DriverIdentity.new().context
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def problem(url: str, *words: str) -> str:
    """Return what is said, and what to mend: both have these words between them."""
    found = reach("Kinesis", url)
    assert found.state is State.PROBLEM
    assert [word for word in words if word not in found.what + found.mend] == []
    return found.what + found.mend


def test_what_keeps_an_endpoint_from_being_reached_is_told() -> None:
    problem(
        "https://kinesis.eu-wset-1.invalid",
        "'kinesis.eu-wset-1.invalid' has no address",
        "Check the region",
    )
    with tls_server() as port:
        problem(f"https://localhost:{port}", "CERTIFICATE_VERIFY_FAILED", "AWS_CA_BUNDLE")


def test_a_proxy_is_reached_in_place_of_the_service(
    listening: int, closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = "https://kinesis.eu-west-1.invalid"
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{listening}")
    found = reach("Kinesis", service)
    assert found.state is State.OK
    assert f"the proxy 127.0.0.1:{listening} can be reached" in found.what
    assert "secret" not in found.what
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{closed}")
    assert "secret" not in problem(service, f"the proxy 127.0.0.1:{closed}", "NO_PROXY")
