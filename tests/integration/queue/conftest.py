"""A service that answers as a test has written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.stream.direct.raw_server import RawServer
from tests.integration.stream.direct.raw_server import serving as serving_bytes
from tests.scripted import Script, Scripted, serving


@pytest.fixture
def server() -> Iterator[RawServer]:
    """Answers with bytes, in turn."""
    with serving_bytes() as running:
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture
def script(service: Scripted) -> Script:
    return service.begin()
