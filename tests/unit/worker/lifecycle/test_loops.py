"""What a worker's loops do as a shutdown begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sparkinesis.metrics.health.liveness import SignOfLife
from sparkinesis.worker.lifecycle.loops import (
    CoordinatorLoop,
    RenewalLoop,
    ShardSyncLoop,
    StreamLoop,
    WorkerLoop,
)
from sparkinesis.worker.lifecycle.streams.open_stream import Streams
from sparkinesis.worker.lifecycle.worker_state import SharedState
from tests.pace import eventually


def settings_of(**intervals: float) -> Any:
    options = SimpleNamespace(failover_time=1.0, shutdown_timeout=30.0, **intervals)
    return SimpleNamespace(clock=time.monotonic, worker_id="me", options=options, reads=None)


class Reading(Streams):
    """Streams that are read."""

    def __init__(self, streams: Sequence[Any] = ()) -> None:
        self._streams = streams

    def begin(self, wait: object) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return "streams"

    def get(self, _: object) -> None:
        return None

    def wants(self, _: object) -> bool:
        return True

    def all(self) -> Sequence[Any]:
        return self._streams

    def update(self, _: object) -> float:
        return 600.0


def test_a_shutdown_reaches_the_taking_of_leases_that_has_begun() -> None:
    settings = settings_of(taker_interval=0.0)
    state = SharedState(settings)
    seen: list[bool] = []

    def take(busy: Collection[str], is_leaving: Callable[[], bool], *_: object) -> bool:
        seen.append(is_leaving())
        state.request_shutdown()
        seen.append(is_leaving())
        return True

    snapshot = SimpleNamespace(leases=(), unfinished=frozenset())
    coordinator: Any = SimpleNamespace(
        take=take,
        due_in=lambda: 0.0,
        duplicate_worker_leases=(),
        snapshot=snapshot,
        leave=lambda: seen.append(state.shutdown.stop_taking.is_set()),
    )
    streams = Reading()
    CoordinatorLoop(state, settings, coordinator, streams).run()
    assert seen == [False, True, True], "the worker leaves the fleet after its last scan"


def test_a_clock_that_jumps_during_a_scan_makes_no_scan_late() -> None:
    """A clock that a test moves, or a machine that was suspended, makes no table a large one."""
    settings = settings_of(taker_interval=2.0)
    now = [100.0]
    settings.clock = lambda: now[0]

    def take(*_: object) -> bool:
        now[0] += 86_400
        return False

    snapshot = SimpleNamespace(leases=(), unfinished=frozenset())
    coordinator: Any = SimpleNamespace(
        take=take, due_in=lambda: 0.0, duplicate_worker_leases=(), snapshot=snapshot
    )
    streams = Reading()
    loop = CoordinatorLoop(SharedState(settings), settings, coordinator, streams)
    assert loop.step() == 20.0


@pytest.mark.parametrize("kind", [RenewalLoop, CoordinatorLoop, ShardSyncLoop, StreamLoop])
def test_a_loop_announces_how_long_it_waits(kind: type[WorkerLoop]) -> None:
    """Or a worker with long intervals would seem to stand still."""
    settings = settings_of(renew_interval=600.0, taker_interval=600.0, cleanup_interval=600.0)
    state = SharedState(settings)
    coordinator: Any = SimpleNamespace(
        renew=lambda: None,
        take=lambda *_: False,
        due_in=lambda: 600.0,
        duplicate_worker_leases=(),
        snapshot=SimpleNamespace(leases=(), expired=(), unfinished=frozenset()),
        leave=lambda: None,
    )
    syncer: Any = SimpleNamespace(step=lambda *_, **__: 600.0)
    stream: Any = SimpleNamespace(
        id=None, syncer=syncer, closed_shards=SimpleNamespace(check=lambda _: 600.0)
    )
    streams = Reading([stream])
    loop = kind(state, settings, coordinator, streams)
    sign = SignOfLife(time.monotonic)
    thread = threading.Thread(target=sign.during, args=(loop.run,), daemon=True)
    thread.start()
    eventually(lambda: sign.due > time.monotonic() + 500)
    state.shutdown.stop_taking.set()
    state.shutdown.stop_renewing.set()
    thread.join(60)
    assert not thread.is_alive()
