"""The `sparkinesis` command."""

from __future__ import annotations

import typer

from sparkinesis.compat.kclpy.command import kclpy
from sparkinesis.lease.leases_command import leases
from sparkinesis.lease.reset_command import reset
from sparkinesis.lease.top_command import top
from sparkinesis.local.command import local
from sparkinesis.worker.dead_letters_command import dead_letters

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
