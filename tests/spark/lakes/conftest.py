"""What a printed program needs to run against a local Kinesis, and what may be missing for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests.spark.lakes.flights import Flights


@pytest.fixture
def flights(server: LocalServer) -> Iterator[Flights]:
    with Flights(server) as putting:
        yield putting


@pytest.fixture
def environment(server: LocalServer, tmp_path: Path) -> dict[str, str]:
    use_java()
    (tmp_path / "lake").mkdir()
    return {"AWS_ENDPOINT_URL": server.endpoint_url}
