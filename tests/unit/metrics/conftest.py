from __future__ import annotations

import pytest

from tests.clocks import MovedClock


@pytest.fixture
def clock() -> MovedClock:
    """At the start of a minute."""
    return MovedClock(60_000.0)
