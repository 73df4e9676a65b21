"""The pages of a health server: ``/livez``, ``/readyz``, ``/status`` and ``/metrics``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from sparkinesis.errors import OptionError
from sparkinesis.metrics.health.address import Address, parse_address
from sparkinesis.metrics.health.server import HealthServer, HttpRequest, Page, Response, as_json
from sparkinesis.metrics.tally import Series, Tally

Reasons = Callable[[], Iterable[str]]
"""Returns why something is not as it should be; nothing if it is."""
Groups = Callable[[], Iterable[tuple[Mapping[str, str], Iterable[Series]]]]
"""Returns series, each group with the labels of its worker, fleet or query."""


class ServedTally(Tally):
    """The measurements of a process that serves them until it closes its metrics."""

    def __init__(self, server: HealthServer) -> None:
        super().__init__()
        self.server = server

    @classmethod
    def starting(cls, address: Address, labels: Mapping[str, str]) -> ServedTally:
        """Take the port, and answer that the process lives and is not ready yet.

        Raises `OptionError` if the port cannot be taken.
        """
        tally = cls(HealthServer(address))
        why = ("it is starting",)
        tally.server.serve(
            pages(
                live=tuple,
                ready=lambda: why,
                status=lambda: {**labels, "not_live": (), "not_ready": why},
                groups=lambda: [(labels, tally.series())],
            )
        )
        return tally

    @classmethod
    def of_option(cls, http: str | None, labels: Mapping[str, str]) -> ServedTally | None:
        """Take the port of the option ``http``, if it is set. Raises `OptionError`."""
        return None if http is None else cls.starting(parse_address("http", http), labels)

    def close(self) -> None:
        self.server.close()


def pages(
    *, live: Reasons, ready: Reasons, status: Callable[[], object], groups: Groups
) -> dict[str, Page]:
    """Return the pages by path.

    status: a value that msgspec can write as JSON.
    """
    return {
        "/livez": lambda _: _check("live", live()),
        "/readyz": lambda _: _check("ready", ready()),
        "/status": lambda _: as_json(status()),
        "/metrics": lambda request: _metrics(groups, request),
    }


def _check(name: str, reasons: Iterable[str]) -> Response:
    found = list(reasons)
    status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
    return as_json({name: not found, "reasons": found}, status)


def _metrics(groups: Groups, request: HttpRequest) -> Response:
    # An extra: who has it not still has the other pages.
    from sparkinesis.metrics.prometheus import exposition  # noqa: PLC0415

    try:
        body, content_type = exposition(groups(), request.accept)
    except OptionError as error:
        text = json.dumps({"error": str(error)}).encode() + b"\n"
        return Response(text, status=HTTPStatus.NOT_IMPLEMENTED)
    return Response(body, content_type)
