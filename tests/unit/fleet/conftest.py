from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.fleet.idle_spark import IdleSpark
from tests.unit.fleet.wire import Driver


@pytest.fixture
def spark() -> Iterator[Any]:
    idle = IdleSpark()
    yield idle
    idle.end_jobs()


@pytest.fixture
def drivers() -> Iterator[Callable[..., Driver]]:
    """A function that makes drivers."""
    made: list[Driver] = []

    def make(**options: Any) -> Driver:
        made.append(Driver(**options))
        return made[-1]

    yield make
    for each in made:
        each.control.close()


@pytest.fixture
def driver(drivers: Callable[..., Driver]) -> Driver:
    return drivers()
