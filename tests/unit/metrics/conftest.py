from __future__ import annotations

import pytest


class Clock:
    """A clock that a test moves; at the start of a minute."""

    def __init__(self) -> None:
        self.now = 60_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
