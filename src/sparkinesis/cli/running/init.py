"""`sparkinesis init`: writes a first application, with its test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sparkinesis.cli.options import errors_in_one_line
from sparkinesis.cli.running.first_application import files_of, steps_of
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import STREAM_NAME


@errors_in_one_line("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write into; made if missing.")
    ] = Path(),
    *,
    stream: Annotated[
        str, typer.Option(metavar="STREAM", help="The name of the stream to process.")
    ] = "events",
) -> None:
    """Write a first application: app.py for `sparkinesis run app:app`, its test, and a README.

    No file is overwritten. The steps that come next are printed.
    """
    if not STREAM_NAME.fullmatch(stream) or len(stream) > 124:
        raise OptionError(
            f"--stream is {stream[:200]!r}; a stream's name has 1 to 124 letters, digits, '_', '.' "
            "and '-', so that STREAM-app is the name of the application."
        )
    files = files_of(stream)
    there = [str(folder / name) for name in files if (folder / name).exists()]
    if there:
        raise OptionError(
            f"There is {' and '.join(there)} already, and no file is overwritten. Name another DIR."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise OptionError(
            f"{folder} cannot be written to: {error.strerror}. Name another DIR."
        ) from None
    typer.echo(f"Wrote {', '.join(str(folder / name) for name in files)}. Next:\n")
    if folder.resolve() != Path.cwd():
        typer.echo(f"cd {os.fspath(folder)}")
    typer.echo(steps_of(stream))
