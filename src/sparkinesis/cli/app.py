"""The `sparkinesis` command."""

from __future__ import annotations

import typer

from sparkinesis.cli.dead_letters import dead_letters
from sparkinesis.cli.kclpy import kclpy
from sparkinesis.cli.leases import leases
from sparkinesis.cli.reset import reset
from sparkinesis.cli.top import top
from sparkinesis.local.command import local

app = typer.Typer(
    name="sparkinesis",
    help="A Kinesis Client Library for PySpark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("local")(local)
app.command("kclpy")(kclpy)
app.command("leases")(leases)
app.command("reset")(reset)
app.command("top")(top)
app.command("dead-letters")(dead_letters)
