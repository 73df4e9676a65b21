"""`sparkinesis ui`: a live page of an application's shards, their owners and their lag."""

from __future__ import annotations

import signal
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
    from sparkinesis.ui.reported import WorkerUrls  # noqa: PLC0415 - slow to import
    from sparkinesis.worker.lifecycle.signals import handling  # noqa: PLC0415 - as above

    over = threading.Event()
    require_bokeh()
    streams = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    report = WorkerUrls(worker or ()).ask
    table = streams.table(app, dynamodb_endpoint)
    # A handler that sets an event, as a KeyboardInterrupt is lost where a finalizer of Python runs.
    with (
        handling((signal.SIGTERM, signal.SIGINT), lambda *_: over.set()),
        serve_table(table, streams, report, port=port, interval=interval) as page,
    ):
        typer.echo(
            f"The page of {app}: {page.url}\n"
            "Its end is a token: whoever has it may move the application. Ctrl-C ends it."
        )
        over.wait()
