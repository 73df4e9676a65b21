"""The `sparkinesis` command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from sparkinesis.cli.command_options import SETTINGS, PlainCommand, PlainGroup
from sparkinesis.cli.compile_pyspark import compile_pyspark
from sparkinesis.cli.convert_leases import convert_leases
from sparkinesis.cli.doctor import doctor
from sparkinesis.cli.leases import leases, top
from sparkinesis.cli.queues.commands import queues
from sparkinesis.cli.reset import reset, restart
from sparkinesis.cli.running.init import init
from sparkinesis.cli.running.kclpy import kclpy
from sparkinesis.cli.running.run import run
from sparkinesis.cli.serving import exporter, ui
from sparkinesis.cli.streams.dead_letters import dead_letters
from sparkinesis.cli.streams.put import put
from sparkinesis.cli.streams.shards import shards
from sparkinesis.cli.streams.tail import tail
from sparkinesis.local.command import local
from sparkinesis.public import __version__

app = typer.Typer(
    name="sparkinesis",
    cls=PlainGroup,
    context_settings=SETTINGS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"sparkinesis {__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """A Kinesis Client Library for PySpark."""


_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Applications": {
        "init": init,
        "run": run,
        "leases": leases,
        "top": top,
        "ui": ui,
        "doctor": doctor,
        "exporter": exporter,
        "reset": reset,
        "restart": restart,
        "convert-leases": convert_leases,
        "dead-letters": dead_letters,
        "kclpy": kclpy,
    },
    "Streams": {
        "tail": tail,
        "put": put,
        "shards": shards,
    },
    "This machine": {
        "local": local,
        "compile-pyspark": compile_pyspark,
    },
}

for _panel, _functions in _COMMANDS.items():
    for _name, _function in _functions.items():
        app.command(_name, cls=PlainCommand, rich_help_panel=_panel)(_function)
app.add_typer(queues, name="queues", rich_help_panel="Streams")
