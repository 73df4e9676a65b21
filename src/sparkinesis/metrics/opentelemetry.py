"""Metrics and spans by OpenTelemetry, whose SDK the application sets up.

The package ``opentelemetry`` is imported where it is used: other workers do without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkinesis.errors import OptionError
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import GaugeReaders, Metrics, Tracing
from sparkinesis.public import public_metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from sparkinesis.metrics.instruments import Instruments

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""The longest wait for what is not exported yet, when a worker has ended."""


@public_metrics
class OpenTelemetryMetrics:
    """Publishes metrics and spans by OpenTelemetry, under the names of the KCL for Java 3.5.

    The application sets up the SDK: its exporters, resources and sampling.

    ``meter_provider``, ``tracer_provider``: by default the global ones of the process that runs the
    worker. Nothing is published, and no span is recorded, until the application sets them.

    ``shards``: True gives counters and histograms the attribute ``aws.kinesis.shard.id`` too, as
    the KCL for Java does. The SDK then keeps the series of every shard that there was. Gauges and
    spans always have it.

    Needs the extra ``otel``.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        shards: bool = False,
    ) -> None:
        self._meter_provider = meter_provider
        self._tracer_provider = tracer_provider
        self._shards = shards

    def open(self, measured: Measured) -> Metrics:
        """Begin to publish. Raises `OptionError` without the extra."""
        require_opentelemetry()
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra

        from sparkinesis.metrics.instruments import (  # noqa: PLC0415 - as above
            instruments_of,
            scope_attributes,
        )
        from sparkinesis.metrics.spans import OtelTracing  # noqa: PLC0415
        from sparkinesis.public import __version__  # noqa: PLC0415

        attributes = scope_attributes(measured)
        tracer = trace.get_tracer("sparkinesis", __version__, self._tracer_provider)
        return _Opened(
            instruments_of(self._meter_provider),
            attributes,
            OtelTracing(tracer, attributes),
            lambda: (
                self._meter_provider or metrics.get_meter_provider(),
                self._tracer_provider or trace.get_tracer_provider(),
            ),
            with_shards=self._shards,
        )

    def __reduce__(self) -> tuple[object, ...]:
        if self._meter_provider is not None or self._tracer_provider is not None:
            raise OptionError(
                "OpenTelemetryMetrics with a provider cannot be sent to another process, because a "
                "provider belongs to its process. Use OpenTelemetryMetrics() for a fleet, and for "
                "worker processes, and let the processor's factory set the global providers, once "
                "in each process."
            )
        return partial(OpenTelemetryMetrics, shards=self._shards), ()


def require_opentelemetry() -> None:
    """Raise OptionError if the API of OpenTelemetry is not installed."""
    try:
        import opentelemetry.metrics  # noqa: PLC0415 - an extra
        import opentelemetry.trace  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise OptionError(
            "OpenTelemetryMetrics needs the package opentelemetry, which cannot be imported: "
            f'{error}. Install it with pip install "sparkinesis[otel]".'
        ) from error


class _Opened:
    """The measurements of one worker, fleet or query. Implements `Metrics`."""

    def __init__(
        self,
        instruments: Instruments,
        attributes: dict[str, str],
        tracing: Tracing,
        providers: Callable[[], tuple[object, ...]],
        *,
        with_shards: bool,
    ) -> None:
        self.tracing = tracing
        self._providers = providers
        gauges = GaugeReaders()
        self._unwatch = instruments.watch(gauges, attributes)
        self.watch = gauges.add
        self.add = self.observe = partial(
            instruments.record, attributes=attributes, with_shards=with_shards
        )

    def close(self) -> None:
        """Take the gauges away, and export what is not exported yet.

        The application's providers go on: other workers may use them.
        """
        self._unwatch()
        flushing = threading.Thread(target=self._flush, name="otel-flush", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)

    def _flush(self) -> None:
        for provider in self._providers():
            flush = getattr(provider, "force_flush", None)  # of the SDK; the API has none
            if flush is not None:
                try:
                    flush(round(FLUSH_SECONDS * 1000))
                except Exception as error:  # noqa: BLE001 - the worker has ended; nothing waits
                    _log.warning("The last metrics or spans were not exported: %s", error)
