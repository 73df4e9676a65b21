"""The queries of a driver by HTTP: their metrics for scrapes, and their lags as JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from sparkinesis.metrics.health.address import Address
from sparkinesis.metrics.health.pages import pages
from sparkinesis.metrics.health.server import HealthServer
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.tally import Series, Tally


class QueryEndpoint:
    """A server of ``/metrics`` and ``/status``, and the exporter that it serves. For any thread.

    ``/livez`` and ``/readyz`` are true while the process answers: Spark runs the queries.
    """

    def __init__(self, address: Address, status: Callable[[], Mapping[str, object]]) -> None:
        """``status``: what ``/status`` says of each query. Raises `OptionError` for no port."""
        self._lock = threading.Lock()
        self._kept: dict[Measured, Tally] = {}
        self._server = HealthServer(address)
        self._server.serve(
            pages(
                live=tuple, ready=tuple, status=lambda: {"queries": status()}, groups=self._groups
            )
        )

    @property
    def url(self) -> str:
        """The server's URL on this machine."""
        return self._server.url

    def open(self, measured: Measured) -> Tally:
        """Begin to count for a query."""
        tally = _Kept(lambda: self._forget(measured))
        with self._lock:
            self._kept[measured] = tally
        return tally

    def close(self) -> None:
        """Stop, and free the port."""
        self._server.close()

    def _groups(self) -> list[tuple[Mapping[str, str], list[Series]]]:
        with self._lock:
            kept = list(self._kept.items())
        return [(measured.labels, tally.series()) for measured, tally in kept]

    def _forget(self, measured: Measured) -> None:
        with self._lock:
            self._kept.pop(measured, None)


class _Kept(Tally):
    """A tally that is served until it is closed."""

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        self._forget = forget

    def close(self) -> None:
        self._forget()
