from __future__ import annotations

import pytest

from sparkinesis.local import LocalKinesis, ManualClock
from tests.unit.local.calls import Stream


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def kinesis(clock: ManualClock) -> LocalKinesis:
    return LocalKinesis(clock=clock, limits=False)


@pytest.fixture
def stream(kinesis: LocalKinesis) -> Stream:
    """A stream with one shard and no limits."""
    return Stream(kinesis, shards=1)
