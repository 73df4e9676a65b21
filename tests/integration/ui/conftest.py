"""A served page of an application on a local Kinesis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import CredentialSource
from sparkinesis.ui.serving import LivePage, serve_table
from sparkinesis.ui.watcher import NOTHING_REPORTED, Reported
from tests.integration.worker.conftest import (  # noqa: F401 - fixtures
    application,
    credentials,
    dynamodb,
    journal,
    kinesis,
    retrieval,
    server,
    start,
    stream,
    subscription_clock,
)

Serve = Callable[..., LivePage]


@pytest.fixture
def serve(server: LocalServer, stream: str) -> Iterator[Serve]:  # noqa: F811 - the fixtures
    """Serves pages of the application that has its stream's name, until the test is over."""
    with ExitStack() as stack:

        def run(
            app: str = stream,
            *,
            report: Callable[[], Reported] = lambda: NOTHING_REPORTED,
            port: int = 0,
            names: tuple[str, ...] = (stream,),
            interval: float = 0.5,
        ) -> LivePage:
            chosen = ChosenStreams.of(names, "us-east-1", server.endpoint_url, CredentialSource())
            page: LivePage = serve_table(
                chosen.table(app, None), chosen, report, port=port, interval=interval
            )
            stack.enter_context(page)
            return page

        yield run
