"""What tests of direct calls share: keys in the environment, and a server that answers as told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.stream.direct.raw_server import RawServer, serving


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def server() -> Iterator[RawServer]:
    with serving() as running:
        yield running
