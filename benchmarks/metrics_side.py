"""One side of the comparison of metrics: a worker that does nothing with its records.

    python -m benchmarks.metrics_side ENDPOINT APPLICATION KIND RECORDS

Prints, as JSON, the seconds and the CPU seconds from its first record to its last.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions
from sparkinesis.metrics import MetricsExporter
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.metrics.tally import Tally

STREAM = "records"
REGION = "us-east-1"
CHECKPOINT_SECONDS = 1.0

KINDS = {
    "none": "no metrics",
    "tally": "counts in memory",
    "events": "counts in memory and on_event",
    "prometheus": "Prometheus",
    "otel": "OpenTelemetry",
    "cloudwatch": "CloudWatch",
}
"""Each kind of metrics, and its name for people."""


class TallyOnly:
    """An exporter that only counts."""

    def open(self, measured: Measured) -> Metrics:  # noqa: ARG002 - the interface
        return Tally()


class Progress:
    """The records of all shards, and the times of the first and the last."""

    def __init__(self, expected: int) -> None:
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._left = expected
        self._began: tuple[float, float] | None = None
        self.told: dict[str, float] = {}

    def begin(self) -> None:
        with self._lock:
            self._began = self._began or (time.monotonic(), time.process_time())

    def end(self, records: int) -> None:
        with self._lock:
            self._left -= records
            if self._left == 0:
                assert self._began is not None
                seconds, cpu = self._began
                self.told = {
                    "seconds": time.monotonic() - seconds,
                    "cpu": time.process_time() - cpu,
                }
                self.done.set()


class Nothing(RecordProcessor):
    """Counts and checkpoints."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._checkpoint_at = 0.0

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self._progress.begin()
        now = time.monotonic()
        if now >= self._checkpoint_at:
            checkpointer.checkpoint()  # if it raises, the batch comes again
            self._checkpoint_at = now + CHECKPOINT_SECONDS
        self._progress.end(len(batch))


def exporters(kind: str) -> tuple[MetricsExporter, ...]:
    """Return the exporters of a kind, whose packages only this process loads."""
    if kind in {"tally", "events"}:
        return (TallyOnly(),)
    if kind == "prometheus":
        from sparkinesis.metrics import PrometheusMetrics  # noqa: PLC0415

        return (PrometheusMetrics(),)
    if kind == "otel":
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415
        from opentelemetry.trace import NoOpTracerProvider  # noqa: PLC0415

        from sparkinesis.metrics import OpenTelemetryMetrics  # noqa: PLC0415

        meters = MeterProvider([InMemoryMetricReader()])
        return (OpenTelemetryMetrics(meters, NoOpTracerProvider()),)
    if kind == "cloudwatch":
        from sparkinesis.metrics import CloudWatchMetrics  # noqa: PLC0415

        return (CloudWatchMetrics(),)
    return ()


def main(arguments: list[str]) -> None:
    endpoint, application, kind, records = arguments
    progress = Progress(int(records))
    events: list[object] = []
    worker = Application(
        application,
        STREAM,
        lambda: Nothing(progress),
        REGION,
        endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(
            idle_time=0.25,
            shard_calls_per_second="unlimited",
            shard_bytes_per_second="unlimited",
            metrics=exporters(kind),
            on_event=events.append if kind == "events" else None,
        ),
    ).worker()
    worker.start()
    while not progress.done.wait(1.0):
        if worker.wait(0):
            raise RuntimeError("The worker has ended before its last record.")
    worker.shutdown(10.0)
    print(json.dumps(progress.told))


if __name__ == "__main__":
    main(sys.argv[1:])
