"""L3: a worker that comes gets its share by handoffs, at once and without any record twice."""

from __future__ import annotations

import time

from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import Scene
from tests.journal import Journal

RETRIEVALS = ("polling", "efo")


def test_the_owner_checkpoints_and_lets_go(scene: Scene) -> None:
    shards = [f"shardId-{n:012d}" for n in range(2)]
    scene.put(b"low")
    scene.put(b"high", 2**127)
    patient = {"handoff_timeout": 3600.0}  # so that nothing is taken from anybody
    scene.start(worker_id="first", on_shutdown=lambda c: c.checkpoint(), options=patient)
    scene.journal.wait_for_data(b"low", b"high")
    second = Journal()
    asked = time.monotonic()
    scene.start(worker_id="second", journal=second, options=patient)
    second.wait(lambda: bool(second.calls("initialize")))
    assert time.monotonic() - asked < 5 * FAILOVER_TIME
    ((stolen, _),) = second.calls("initialize")
    scene.journal.wait(lambda: (stolen, "lease_lost") in scene.journal.calls())
    calls = [call for shard, call in scene.journal.calls() if shard == stolen]
    assert calls[-2:] == ["shutdown_requested", "lease_lost"]
    for place in (0, 2**127):
        scene.put(b"later", place)
    second.wait_for_data(b"later")
    assert second.data() == [b"later"], "the first checkpointed what it had done"
    (kept,) = set(shards) - {stolen}
    assert (kept, "shutdown_requested") not in scene.journal.calls()


def test_leases_are_taken_by_the_options(scene: Scene) -> None:
    options = {
        "failover_time": 12.0,
        "max_leases": 7,
        "max_leases_to_steal": 3,
        "handoff_timeout": 11.0,
    }
    settings = scene.application(options).worker()._coordinator._settings
    assert {name: getattr(settings, name) for name in options} == options
