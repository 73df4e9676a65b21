from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from tests.integration.compat.sample import find_sdist


class Throttling:
    """A fault plan that, while on, fails all writes to the lease table."""

    def __init__(self) -> None:
        self.starts_when: Callable[[Call], bool] = lambda _: False
        self.is_on = False

    def __call__(self, call: Call) -> Fault | None:
        if self.starts_when(call):
            self.is_on = True
            self.starts_when = lambda _: False
        if self.is_on and call.operation == "UpdateItem":
            return Fault.error("ProvisionedThroughputExceededException")
        return None


@pytest.fixture
def throttling() -> Throttling:
    return Throttling()


@pytest.fixture
def server(throttling: Throttling) -> Iterator[LocalServer]:
    with LocalServer(limits=False, faults=throttling, dynamodb=True) as running:
        yield running


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_sdist(tmp_path_factory.mktemp("sdists"))
