"""The `sparkinesis` command."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkinesis.cli.compile_pyspark import compile_pyspark
from sparkinesis.cli.convert_leases import convert_leases
from sparkinesis.cli.dead_letters import dead_letters
from sparkinesis.cli.doctor import doctor
from sparkinesis.cli.exporter import exporter
from sparkinesis.cli.kclpy import kclpy
from sparkinesis.cli.leases import leases
from sparkinesis.cli.reset import reset
from sparkinesis.cli.top import top
from sparkinesis.cli.ui import ui
from sparkinesis.local.command import local
from sparkinesis.public import __version__

app = typer.Typer(
    name="sparkinesis",
    no_args_is_help=True,
    add_completion=False,
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


app.command("local")(local)
app.command("kclpy")(kclpy)
app.command("leases")(leases)
app.command("reset")(reset)
app.command("top")(top)
app.command("doctor")(doctor)
app.command("exporter")(exporter)
app.command("ui")(ui)
app.command("convert-leases")(convert_leases)
app.command("dead-letters")(dead_letters)
app.command("compile-pyspark")(compile_pyspark)
