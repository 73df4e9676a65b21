"""`sparkinesis run`: runs the application of a module, until it is told to end."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from sparkinesis.cli.options import errors_in_one_line
from sparkinesis.cli.running.log_lines import LogForm, LogLevel, set_up_logging
from sparkinesis.cli.running.reloading import end_with_reloader, run_and_reload
from sparkinesis.errors import OptionError
from sparkinesis.worker.lifecycle.signals import SIGNALS, handling


@errors_in_one_line("run")
def run(
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP",
            help="The module, and the name of its Application; MODULE alone means MODULE:app.",
        ),
    ],
    submit: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- SPARK_OPTIONS]", help="With --workers: options of spark-submit."
        ),
    ] = None,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Run N workers in processes of their own, or auto: one for each CPU. Default: "
            "one worker in this process.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST]:PORT",
            help="Answer /livez, /readyz, /status and /metrics there. Default: as the "
            "application's options say.",
        ),
    ] = None,
    log: Annotated[
        LogForm | None,
        typer.Option(
            metavar="text|json",
            help="The form of the log, on stderr. Default: text on a terminal, otherwise json.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help="The level to log from: debug to error.")
    ] = LogLevel.INFO,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run a fleet of N workers on Spark's executors."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --workers: Spark's master, or sc://HOST of a Spark Connect server. Default: "
            "as Spark is configured.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Start again when a Python file below the working directory changes; for "
            "development.",
        ),
    ] = False,
) -> None:
    """Run an application until SIGTERM or Ctrl-C, which end it gracefully; a second one at once.

    The application is a name in a module, such as app = Application(...) in flights.py, without
    .run(). The module is looked for in the working directory first.
    """
    if workers is None and (master is not None or submit):
        raise OptionError(
            f"{'--master' if master is not None else shlex.join(submit or [])} is for a fleet on "
            "Spark. Add --workers N, or leave it out."
        )
    if workers is not None and (processes is not None or reload):
        raise OptionError(
            f"--workers runs a fleet on Spark, and {'--reload' if reload else '--processes'} is "
            "for this machine. Leave one of them out."
        )
    if reload:
        command = [sys.executable, *(one for one in sys.argv if one != "--reload")]
        raise typer.Exit(run_and_reload(command, Path.cwd(), _say))
    # Process 1 of a container ignores SIGTERM until it has a handler, and a start takes seconds.
    with handling(SIGNALS, _leave):
        end_with_reloader()
        set_up_logging(log, log_level)
        from sparkinesis.cli.running.loading import load_application  # noqa: PLC0415

        application = load_application(path)
        if http is not None:
            application = replace(application, options=replace(application.options, http=http))
        if processes is not None:
            from sparkinesis.worker.supervision.processes.start import run_in_processes  # noqa: PLC0415

            count = int(processes) if processes.isdecimal() else processes
            run_in_processes(application, count, partial(set_up_logging, log, log_level))
        elif workers is None:
            application.run()
        else:
            from sparkinesis.fleet.own_session import run_fleet  # noqa: PLC0415

            run_fleet(application, path.partition(":")[0], workers, master, submit or [])


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    typer.echo(f"sparkinesis run: {text}", err=True)
