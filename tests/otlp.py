"""A collector of OpenTelemetry's metrics, by OTLP over HTTP."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from tests.answering import answering


class Receiver:
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[ExportMetricsServiceRequest] = []
        self._serving = ExitStack()
        url = self._serving.enter_context(answering(self._answer, "application/x-protobuf"))
        self.endpoint = f"{url}/v1/metrics"

    def _answer(self, _: object, body: bytes) -> tuple[int, bytes]:
        self.got.append(ExportMetricsServiceRequest.FromString(body))
        return 200, ExportMetricsServiceResponse().SerializeToString()

    def close(self) -> None:
        self._serving.close()


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    """Return the metrics of a request, by name."""
    return {
        metric.name: metric
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def attributes_of(point: Any) -> dict[str, str]:
    """Return the attributes of a point whose values are strings."""
    return {one.key: one.value.string_value for one in point.attributes}
