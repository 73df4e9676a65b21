"""The `sparkinesis` command."""

from __future__ import annotations

import typer

from sparkinesis.compat.kclpy.command import kclpy
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


@app.callback()
def _main() -> None:
    """Makes `local` a subcommand even while it is the only one."""
