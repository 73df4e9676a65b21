from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.logs import quiet_logging


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with quiet_logging():
        yield
