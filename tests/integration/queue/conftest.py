"""Queues on a local Kinesis, and services that answer as a test has written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.integration.queue.scene import REGION, VISIBILITY, Handled, QueueScene
from tests.integration.stream.direct.raw_server import RawServer
from tests.integration.stream.direct.raw_server import serving as serving_bytes
from tests.scripted import Script, Scripted, serving
from tests.streams import create_queue


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


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scene(clock: ManualClock) -> Iterator[QueueScene]:
    with LocalServer(clock=clock) as server:
        kinesis = server.client("kinesis", region=REGION)
        arn = create_queue(kinesis, "s", "orders", VisibilityTimeoutSeconds=VISIBILITY)
        found = QueueScene(server, clock, kinesis, "s", arn)
        yield found
        server.kinesis.faults = None
        for worker in found.workers:
            worker.request_shutdown(0.0)
        # Ends the polls that are under way, and the waits of the workers.
        while any(not worker._ending.ended.is_set() for worker in found.workers):
            found.pass_time(30.0)
            for worker in found.workers:
                worker._ending.ended.wait(0.05)


@pytest.fixture
def handled() -> Handled:
    """A handler that waits for nothing."""
    found = Handled()
    found.gate.set()
    return found


@pytest.fixture
def held_up() -> Iterator[Handled]:
    """A handler that waits until the test opens its gate, or has ended."""
    found = Handled()
    yield found
    found.gate.set()
