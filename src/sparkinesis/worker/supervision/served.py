"""A supervisor's own metrics, and the pages of all its workers: health, status, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparkinesis.metrics.catalogue import FLEET_RUNNING, FLEET_WAITING, FLEET_WANTED
from sparkinesis.metrics.health.liveness import Liveness
from sparkinesis.metrics.health.pages import ServedTally, pages
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics, Sample, metrics_of
from sparkinesis.metrics.tally import Series
from sparkinesis.status import FleetState, FleetStatus, WorkerState, WorkerStatus
from sparkinesis.worker.supervision.supervised import Supervised

_HERE = {WorkerState.RUNNING, WorkerState.LEAVING}

Groups = list[tuple[Mapping[str, str], tuple[Series, ...]]]


def why_not_live(workers: Iterable[WorkerStatus]) -> list[str]:
    """Return which loops of which workers stand still or have died. Pure.

    A lost worker does not count: another one takes its place.
    """
    return [
        f"worker {worker.worker_id}: {why}"
        for worker in workers
        if worker.state in _HERE
        for why in worker.not_live
    ]


def why_not_ready(status: FleetStatus) -> list[str]:
    """Return why no worker sees the lease table; nothing if one does. Pure."""
    if status.state is not FleetState.RUNNING:
        return [f"the workers are {status.state.value}"]
    running = [one for one in status.workers if one.state is WorkerState.RUNNING]
    if not running:
        return ["no worker runs"]
    if not all(worker.not_ready for worker in running):
        return []
    return [f"worker {one.worker_id}: {why}" for one in running for why in one.not_ready]


def gauges_of(status: FleetStatus) -> list[Sample]:
    """Return the gauges of all workers together. Pure.

    A worker that has to start counts as waiting until it reports; one that leaves is not counted.
    """
    states = [worker.state for worker in status.workers]
    waiting = status.waiting + states.count(WorkerState.STARTING)
    return [
        Sample(FLEET_WANTED, (), status.wanted),
        Sample(FLEET_RUNNING, (), states.count(WorkerState.RUNNING)),
        Sample(FLEET_WAITING, (), waiting),
    ]


class SupervisorPages:
    """Takes the measurements of the supervisor, and serves pages if the option ``http`` is set."""

    def __init__(self, supervised: Supervised[Any], status: Callable[[], FleetStatus]) -> None:
        """Takes the port, before anything else. Raises `OptionError`.

        status: returns the status of all, in any thread, from `serve` on.
        """
        self._labels = {"application": supervised.name}
        self._status = status
        self._served = ServedTally.of_option(supervised.http, self._labels)
        try:
            own = () if self._served is None else (self._served,)
            measured = Measured.fleet(supervised.name, supervised.place)
            self.metrics: Metrics = metrics_of(supervised.metrics, measured, *own)
            """Takes the measurements of the supervisor, until `close`."""
            self.metrics.watch(lambda: gauges_of(status()))
        except BaseException:
            self.stop_serving()
            raise

    @property
    def url(self) -> str | None:
        """The address of the pages; None if they are not served."""
        served = self._served
        return None if served is None else served.server.url

    def serve(self, live: Liveness, groups: Callable[[], Groups]) -> None:
        """Serve the pages. ``groups``: returns the series of the workers."""
        served = self._served
        if served is None:
            return
        served.server.serve(
            pages(
                live=lambda: [*live.problems(), *why_not_live(self._status().workers)],
                ready=lambda: why_not_ready(self._status()),
                status=self._status,
                groups=lambda: [(self._labels, served.series()), *groups()],
            ),
            live.check,
        )

    def stop_serving(self) -> None:
        """Free the port."""
        served, self._served = self._served, None
        if served is not None:
            served.close()

    def close(self) -> None:
        """Free the port, and publish the last metrics."""
        self.stop_serving()
        self.metrics.close()
