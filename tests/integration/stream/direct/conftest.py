"""What tests of direct calls share: keys in the environment, and a server that answers as told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sparkinesis.stream.calls.direct.direct_client import DirectClient
from tests.integration.stream.direct.both import clients
from tests.integration.stream.direct.raw_server import RawServer, serving


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def server() -> Iterator[RawServer]:
    with serving() as running:
        yield running


@pytest.fixture
def direct(server: RawServer, credentials: None) -> Iterator[DirectClient]:
    """A client of Kinesis; `clients` makes others."""
    _, client = clients(server.endpoint)
    with closing(client):
        yield client
