"""`sparkinesis kclpy`: runs the program of a properties file, like the MultiLangDaemon."""

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

from sparkinesis.cli.command_options import errors_in_one_line
from sparkinesis.cli.running.run import KCLPY, user_error
from sparkinesis.errors import OptionError, SparkinesisError

_INTERPRETER = re.compile(r"(.*/)?(env|python[0-9.]*)")


@errors_in_one_line("kclpy")
def kclpy(
    properties: Annotated[
        Path,
        typer.Argument(metavar="FILE.properties", help="A MultiLangDaemon properties file."),
    ],
) -> None:
    """Run a program written for amazon_kclpy (with changed imports) in this process."""
    # Imported here, since boto3 is slow to import and the other commands do not need it.
    from sparkinesis.compat.kclpy.translation import (  # noqa: PLC0415
        PROPERTIES_VARIABLE,
        read_executable,
    )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    script, arguments = find_program(read_executable(properties), properties)
    os.environ[PROPERTIES_VARIABLE] = str(properties.resolve())
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    # Even where it is installed: its KCLProcess waits without a word for a daemon on stdin.
    sys.modules[KCLPY] = None  # type: ignore[assignment]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except (SparkinesisError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the user's program raises
        raise user_error(f"{script} ended with an error:", error) from None


def find_program(command: str, properties: Path) -> tuple[Path, Sequence[str]]:
    """Return the Python file of an ``executableName``, and its arguments.

    The file lies beside the properties file or in the working directory. A leading interpreter,
    such as ``/usr/bin/env python3 -u``, is dropped with its flags: this process replaces it. Raises
    `OptionError` if the program does not exist or is not written in Python.
    """
    words = command.split()
    while words and (_INTERPRETER.fullmatch(words[0]) or words[0] in {"-u", "-O", "-E", "-s"}):
        words.pop(0)
    if not words:
        raise OptionError(
            f"{properties}: executableName is {command!r}, which names no program. Name the Python "
            "file to run."
        )
    for folder in (properties.resolve().parent, Path.cwd()):
        script = folder / words[0]
        if script.is_file():
            break
    else:
        raise OptionError(
            f"{properties}: executableName is {command!r}, but there is no file {words[0]} "
            f"beside the properties file or in {Path.cwd()}."
        )
    if script.suffix != ".py" and not _says_python(script):
        raise OptionError(
            f"{properties}: executableName is {command!r}, which is not a Python program: the "
            "name does not end in .py, and the first line does not name python. Name the Python "
            "file that it starts."
        )
    return script, words[1:]


def _says_python(script: Path) -> bool:
    with script.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first
