"""A collector of OpenTelemetry's metrics, by OTLP over HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Receiver:
    """An OTLP collector that keeps what it gets, or does not answer."""

    def __init__(self) -> None:
        self.got: list[ExportMetricsServiceRequest] = []
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked.set()
                receiver.answers.wait()
                receiver.got.append(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/metrics"

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def last(self) -> dict[str, Any]:
        """Return the metrics of the last request, by name."""
        return metrics_of(self.got[-1])


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
