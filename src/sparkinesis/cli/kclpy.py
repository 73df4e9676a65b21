"""`sparkinesis kclpy`: starts the program that a properties file names, as the daemon would."""

from __future__ import annotations

import logging
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sparkinesis.errors import OptionError, SparkinesisError

_INTERPRETER = re.compile(r"(.*/)?(env|python[0-9.]*)")


def kclpy(
    properties: Annotated[
        Path, typer.Argument(metavar="FILE.properties", help="What the MultiLangDaemon is given.")
    ],
) -> None:
    """Run a program written for amazon_kclpy, its imports changed, in this process."""
    # Not above: the other commands need no boto3, which takes long to import.
    from sparkinesis.compat.kclpy.settings import (  # noqa: PLC0415
        PROPERTIES_VARIABLE,
        read_executable,
    )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        script, arguments = find_program(read_executable(properties), properties)
        os.environ[PROPERTIES_VARIABLE] = str(properties.resolve())
        sys.argv = [str(script), *arguments]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
    except SparkinesisError as error:
        typer.echo(f"sparkinesis kclpy: {error}", err=True)
        raise typer.Exit(1) from None


def find_program(command: str, properties: Path) -> tuple[Path, Sequence[str]]:
    """The Python file of an ``executableName``, and its arguments.

    Looked for beside the properties file, then in the working directory. An interpreter in front,
    such as ``/usr/bin/env python3 -u``, is dropped with its flags: this process is one. Raises
    `OptionError` for a program that is not there, or not of Python.
    """
    words = command.split()
    while words and (_INTERPRETER.fullmatch(words[0]) or words[0] in {"-u", "-O", "-E", "-s"}):
        words.pop(0)
    if not words:
        raise OptionError(f"{properties}: executableName is {command!r}, which names no program.")
    for folder in (properties.resolve().parent, Path.cwd()):
        script = folder / words[0]
        if script.is_file():
            break
    else:
        raise OptionError(
            f"{properties}: executableName is {command!r}, but there is no file {words[0]}, "
            f"neither beside the properties file nor in {Path.cwd()}."
        )
    if script.suffix != ".py" and not _says_python(script):
        raise OptionError(
            f"{properties}: executableName is {command!r}, which is no Python program: it has "
            "neither the ending .py nor a first line that names python. Name the Python file that "
            "it starts."
        )
    return script, words[1:]


def _says_python(script: Path) -> bool:
    with script.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first
