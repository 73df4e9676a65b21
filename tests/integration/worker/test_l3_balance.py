"""L3: a worker that comes gets its share by handoffs, at once and without any record twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sparkinesis.application import Application
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.journal import Journal, Journaling
from tests.streams import put_at

RETRIEVALS = ("polling", "efo")


def test_the_owner_checkpoints_and_lets_go(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    kinesis: Any,
    stream: str,
    journal: Journal,
) -> None:
    shards = [f"shardId-{n:012d}" for n in range(2)]
    put_at(kinesis, stream, b"low")
    put_at(kinesis, stream, b"high", 2**127)
    patient = {"handoff_timeout": 3600.0}  # so that nothing is taken from anybody
    start(
        application(
            worker_id="first",
            processor=lambda: Journaling(journal, on_shutdown=lambda c: c.checkpoint()),
            options=patient,
        )
    )
    journal.wait_for_data(b"low", b"high")
    second = Journal()
    asked = time.monotonic()
    start(application(worker_id="second", processor=lambda: Journaling(second), options=patient))
    second.wait(lambda: bool(second.calls("initialize")))
    assert time.monotonic() - asked < 5 * FAILOVER_TIME
    ((stolen, _),) = second.calls("initialize")
    journal.wait(lambda: (stolen, "lease_lost") in journal.calls())
    calls = [call for shard, call in journal.calls() if shard == stolen]
    assert calls[-2:] == ["shutdown_requested", "lease_lost"]
    for place in (0, 2**127):
        put_at(kinesis, stream, b"later", place)
    second.wait_for_data(b"later")
    assert second.data() == [b"later"], "the first checkpointed what it had done"
    (kept,) = set(shards) - {stolen}
    assert (kept, "shutdown_requested") not in journal.calls()


def test_leases_are_taken_by_the_options(application: Callable[..., Application]) -> None:
    options = {"max_leases": 7, "max_leases_to_steal": 3, "handoff_timeout": 11.0}
    settings = application(options).worker()._coordinator._settings
    assert {name: getattr(settings, name) for name in options} == options
