from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.fleet.idle_spark import IdleSpark


@pytest.fixture
def spark() -> Iterator[Any]:
    idle = IdleSpark()
    yield idle
    idle.end_jobs()
