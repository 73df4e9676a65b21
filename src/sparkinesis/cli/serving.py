"""The commands that serve an application's shards, their owners and their lag until Ctrl-C.

`sparkinesis ui` serves a live page, `sparkinesis exporter` gauges for Prometheus, without the
application's workers.
"""

from __future__ import annotations

import logging
import threading
from typing import Annotated

import typer

from sparkinesis.cli.command_options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    Streams,
    errors_in_one_line,
)
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import CredentialSource
from sparkinesis.ui.serving import PORT, require_bokeh, serve_table


@errors_in_one_line("ui", ends_by_ctrl_c=True)
def ui(
    *,
    app: AppName,
    stream: Streams = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="URL",
            help="The address at which a worker serves its status, such as http://127.0.0.1:9400: "
            "shows its records per second and its failures. Repeatable.",
        ),
    ] = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port on 127.0.0.1; 0: any that is free.")
    ] = PORT,
    interval: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="Seconds between two looks.")
    ] = 2.0,
) -> None:
    """Serve a page of an application: its shards over time, their owners, their lag."""
    from sparkinesis.ui.watcher import WorkerUrls  # noqa: PLC0415 - slow to import
    from sparkinesis.worker.lifecycle.signals import SIGNALS, handling  # noqa: PLC0415 - as above

    over = threading.Event()
    require_bokeh()
    streams = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    report = WorkerUrls(worker or ()).ask
    table = streams.table(app, dynamodb_endpoint)
    # A handler that sets an event, as a KeyboardInterrupt is lost where a finalizer of Python runs.
    with (
        handling(SIGNALS, lambda *_: over.set()),
        serve_table(table, streams, report, port=port, interval=interval) as page,
    ):
        typer.echo(
            f"The page of {app}: {page.url}\n"
            "Its end is a token: whoever has it may move the application. Ctrl-C ends it."
        )
        over.wait()


@errors_in_one_line("exporter")
def exporter(
    *,
    app: AppName,
    stream: Streams = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to serve at. :9401 is this machine only, 0.0.0.0:9401 all networks.",
        ),
    ] = ":9401",
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    interval: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Seconds between two scans.")
    ] = 10.0,
) -> None:
    """Serve an application's lag, owners and checkpoint ages to Prometheus, from outside."""
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.metrics.health.http_address import parse_address  # noqa: PLC0415
    from sparkinesis.metrics.health.pages import ServedTally  # noqa: PLC0415
    from sparkinesis.metrics.prometheus import require_prometheus_client  # noqa: PLC0415
    from sparkinesis.monitor.metrics_exporter import Exporter  # noqa: PLC0415
    from sparkinesis.worker.lifecycle.signals import SIGNALS, handling  # noqa: PLC0415

    over = threading.Event()
    require_prometheus_client()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    streams = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    table = streams.table(app, dynamodb_endpoint)
    served = ServedTally.starting(parse_address("--http", http), {"application": app})
    try:
        with handling(SIGNALS, lambda *_: over.set()):
            typer.echo(f"Serving {served.server.url}/metrics until Ctrl-C")
            Exporter(app, table, streams, served, interval=interval).run(over.wait)
    finally:
        served.close()
