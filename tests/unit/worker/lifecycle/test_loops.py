"""What a worker's loops do as a shutdown begins."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

from sparkinesis.worker.lifecycle.loops import AssignmentLoop
from sparkinesis.worker.lifecycle.worker_state import WorkerState


def test_a_shutdown_reaches_the_taking_of_leases_that_has_begun() -> None:
    settings: Any = SimpleNamespace(
        clock=lambda: 0.0,
        worker_id="me",
        options=SimpleNamespace(taker_interval=0.0, failover_time=1.0, shutdown_timeout=30.0),
    )
    state = WorkerState(settings)
    seen: list[bool] = []

    def take(
        busy: Collection[str], is_leaving: Callable[[], bool], reads: object, wants: object
    ) -> bool:
        seen.append(is_leaving())
        state.request_shutdown()
        seen.append(is_leaving())
        return True

    coordinator: Any = SimpleNamespace(take=take, duplicate_worker_leases=())
    streams: Any = SimpleNamespace(wants=lambda _: True)
    AssignmentLoop(state, settings, coordinator, streams).run()
    assert seen == [False, True]
