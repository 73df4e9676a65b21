"""The command `sparkinesis local`: runs the local server in the foreground."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sparkinesis.errors import SparkinesisError
from sparkinesis.local.encoding.requests import ON_DEMAND_SIZE, capacity
from sparkinesis.local.kinesis import DEFAULT_REGION
from sparkinesis.local.service_errors import KinesisError
from sparkinesis.local.wire.server import LocalServer


def parse_streams(text: str) -> dict[str, int | str]:
    """Parse "flights:4,orders:on-demand" into shard counts, or `ON_DEMAND_SIZE`, by stream name.

    The default is 1 shard. Raises: typer.BadParameter.
    """
    streams: dict[str, int | str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, count = part.partition(":")
        shards = int(count) if count.isdigit() else 0 if colon else 1
        if not name or (shards < 1 and count != ON_DEMAND_SIZE):
            raise typer.BadParameter(
                f"{part!r} is not NAME, NAME:SHARDS or NAME:{ON_DEMAND_SIZE}, as in flights:4"
            )
        if name in streams:
            raise typer.BadParameter(f"stream {name!r} is given twice")
        streams[name] = shards or ON_DEMAND_SIZE
    return streams


def environments_region() -> str:
    """Return the region in which clients without a region of their own look for streams."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - slow to import
    from botocore.session import Session  # noqa: PLC0415

    names = [*filter(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))]
    session = Session(
        session_vars={"region": ("region", names, None, None)}, include_builtin_handlers=False
    )
    try:
        return session.get_config_variable("region") or DEFAULT_REGION
    except BotoCoreError:  # no such profile, which clients report
        return DEFAULT_REGION


def local(
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 4566,
    bind: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 in a container. Whoever reaches another address "
            "than 127.0.0.1 can read and delete all data.",
        ),
    ] = "127.0.0.1",
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name besides localhost under which clients call the server, as a container's; "
            "may be repeated. Requests for other names are refused.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="PEM file with a private key and its certificate: serve TLS with it.",
        ),
    ] = None,
    streams: Annotated[
        str,
        typer.Option(
            metavar="NAME:SHARDS,...",
            help="Streams to create, as in flights:4,other. One for queues: orders:on-demand.",
        ),
    ] = "",
    region: Annotated[
        str | None,
        typer.Option(
            metavar="REGION",
            help="Region in which to create the streams. Default: the environment's region, or "
            "us-east-1.",
        ),
    ] = None,
    limits: Annotated[
        bool, typer.Option(help="Apply the limits of the service (throttling), or none.")
    ] = True,
    dynamodb: Annotated[
        bool,
        typer.Option("--dynamodb", help="Start DynamoDB at once instead of on its first request."),
    ] = False,
    cloudwatch: Annotated[
        bool,
        typer.Option("--cloudwatch", help="Serve CloudWatch too, for the metrics of workers."),
    ] = False,
    empty_pages: Annotated[
        int, typer.Option(min=0, help="Empty responses that a new iterator returns before records.")
    ] = 0,
    stream_delay_ms: Annotated[
        int,
        typer.Option(
            min=0, help="Milliseconds a stream or queue stays CREATING, UPDATING or DELETING."
        ),
    ] = 500,
    reshard_delay_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Milliseconds a stream stays UPDATING during a reshard.",
            show_default="--stream-delay-ms",
        ),
    ] = None,
    consumer_delay_ms: Annotated[
        int, typer.Option(min=0, help="Milliseconds a consumer stays CREATING or DELETING.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only one line of JSON, with the endpoint.")
    ] = False,
) -> None:
    """Run Kinesis, DynamoDB and STS on this machine until Ctrl-C. All data is in memory."""
    wanted = parse_streams(streams)
    region = region or environments_region()
    try:
        server = LocalServer(
            port,
            bind=bind,
            host_names=host_name or (),
            certificate=certificate,
            limits=None,
            dynamodb=dynamodb,
            cloudwatch=cloudwatch,
            empty_pages=empty_pages,
            reshard_delay_ms=reshard_delay_ms,
            consumer_delay_ms=consumer_delay_ms,
        )
    except SparkinesisError as error:
        raise typer.BadParameter(str(error)) from None
    with _set_by_signals() as stop:
        try:
            server.start()
            # Created before the limits and the delay apply: CreateStream has a quota per second,
            # and these streams are ACTIVE when the URL is printed.
            for name, shards in wanted.items():
                server.kinesis.call(
                    "CreateStream", region=region, StreamName=name, **capacity(shards)
                )
            server.kinesis.limits = limits
            server.kinesis.stream_delay_ms = stream_delay_ms
            if as_json:
                ready = {"endpoint": server.endpoint_url, "region": region, "streams": wanted}
                typer.echo(json.dumps(ready))
            else:
                exposed = _names(bind, host_name or ())
                _introduce(server.endpoint_url, region, wanted, certificate, exposed)
            stop.wait()
        except (SparkinesisError, KinesisError) as error:
            typer.echo(f"sparkinesis local: {error}", err=True)
            raise typer.Exit(1) from None
        finally:
            server.stop()


@contextlib.contextmanager
def _set_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set within the block; then restore the handlers."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _names(address: str, host_names: Sequence[str]) -> str:
    """Return a warning about a server that other machines can reach; else ""."""
    if ipaddress.ip_address(address).is_loopback:
        return ""
    names = ", ".join(["localhost", *host_names])
    return (
        f"It listens on {address}: everyone who reaches it can read and delete its data.\n"
        f"It answers requests for IP addresses and for these names (--host-name): {names}."
    )


def _introduce(
    url: str,
    region: str,
    streams: dict[str, int | str],
    certificate: Path | None,
    exposed: str,
) -> None:
    """Print the URL on the first line, for programs; then examples of its use, for people."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(url, style="bold green"))
    console.print()
    for name, text in _hints(url, region, streams, certificate):
        # Do not wrap: a wrapped line cannot be copied.
        console.print(Text.assemble((f"{name:<9}", "dim"), text), soft_wrap=True)
    console.print()
    if exposed:
        console.print(exposed, style="yellow", markup=False)
    console.print(
        "Any credentials are accepted. Ctrl-C stops the server; its data is lost.", style="dim"
    )


def _hints(
    url: str, region: str, streams: dict[str, int | str], certificate: Path | None
) -> Sequence[tuple[str, str]]:
    sizes = {
        name: size if isinstance(size, str) else f"{size} shard{'s' * (size > 1)}"
        for name, size in streams.items()
    }
    made = ", ".join(f"{name} ({size})" for name, size in sizes.items())
    return [
        *([("streams", f"{made} in {region}")] if made else []),
        *([("TLS", f"export AWS_CA_BUNDLE={certificate}")] if certificate else []),
        ("Spark", f'.option("endpoint", "{url}").option("region", "{region}")'),
        ("boto3", f'boto3.client("kinesis", endpoint_url="{url}", region_name="{region}")'),
        ("AWS CLI", f"aws --endpoint-url {url} --region {region} kinesis list-streams"),
    ]
