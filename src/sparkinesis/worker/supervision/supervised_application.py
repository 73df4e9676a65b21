"""`SupervisedApplication`: an application with leases, as its supervisor knows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparkinesis.metrics.metrics import Metrics
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.new_worker import new_worker
from sparkinesis.worker.lifecycle.streams.stream_config import StreamConfig
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.supervision.supervised import Supervised


@dataclass(frozen=True, kw_only=True, repr=False)
class SupervisedApplication(Supervised[ApplicationSettings]):
    """An application with leases. Its workers share a lease table."""

    @classmethod
    def of(cls, application: ApplicationSettings) -> SupervisedApplication:
        """Return what a supervisor needs. Raises `OptionError`."""
        options = application.options
        return cls(
            application=application,
            name=application.name,
            reads=application.stream_names(),
            place=application.place(),
            http=options.http,
            metrics=options.metrics,
            shutdown_within=options.shutdown_timeout,
            failover_time=options.failover_time,
            worker_id=application.worker_id,
        )

    def worker(self, worker_id: str, tally: Metrics | None, look_every: float) -> Worker:
        # Validates again: the machine of an executor may lack the supervisor's region.
        options = replace(self.application.options, http=None)
        application = replace(self.application, worker_id=worker_id, options=options)
        return new_worker(application, tally=tally, look_every=look_every)

    def check(self) -> None:
        """Find the streams, and create the lease table."""
        options = replace(self.application.options, http=None, metrics=(), on_event=None)
        new_worker(replace(self.application, options=options)).shutdown()

    def policies(self) -> list[OnError]:
        streams = self.application.streams
        plans = [] if streams is None or callable(streams) else self.application.plans()
        return [self.application.on_error, *(plan.on_error for plan in plans)]

    def functions(self) -> Iterator[tuple[str, object]]:
        application = self.application
        if callable(application.streams):
            yield "The function streams", application.streams
        if application.former_streams.only is not None:
            yield "The function only of former_streams", application.former_streams.only
        yield "on_event", application.options.on_event
        yield "on_error", application.on_error
        for exporter in application.options.metrics:
            yield "metrics", exporter

    def processors(self) -> Iterator[tuple[str, object]]:
        streams = self.application.streams
        for one in () if streams is None or callable(streams) else streams:
            if isinstance(one, StreamConfig):
                yield f"the processor of stream {one.stream!r}", one
