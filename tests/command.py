"""The command `sparkinesis`, as tests call it: in this process, or in one of its own."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

from sparkinesis.cli.app import app
from sparkinesis.local import LocalServer

COMMAND = str(Path(sys.executable).with_name("sparkinesis"))
Result = subprocess.CompletedProcess[str]
Command = Callable[..., Result]


@functools.cache
def group() -> Any:
    """The command with all that are below it, which takes 30 ms to be made of the functions."""
    return typer.main.get_command(app)


def commands() -> Iterator[tuple[list[str], Any]]:
    """Each command that does something, by the words that call it: ``queues list`` has two."""
    yield from _below([], group())


def _below(words: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, each in (inner or {}).items():
        yield from _below([*words, name], each)


def place_of(server: LocalServer) -> list[str]:
    return ["--region", "us-east-1", "--endpoint", server.endpoint_url]


def call(*arguments: str) -> Result:
    """Run a command in this process, without a terminal: a Python that starts takes a second."""
    with _logging_restored(), CliRunner().isolation() as (out, error, _):
        code = None
        try:
            group().main(args=arguments, prog_name="sparkinesis")
        except SystemExit as ended:
            code = ended.code
        told = [each.getvalue().decode().replace("\r\n", "\n") for each in (out, error)]
    assert code is None or isinstance(code, int), code
    return Result(arguments, code or 0, *told)


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Restore the root logger's handlers and all levels: a command sets up its process's log."""
    root = logging.getLogger()
    handlers, levels = list(root.handlers), {each: each.level for each in _loggers()}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for each in _loggers():
            each.setLevel(levels.get(each, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]


def run(*arguments: str) -> Result:
    """Run a command in a process of its own, without a terminal."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def asked(answer: str, *arguments: str) -> Result:
    """Run a command beside a terminal on which somebody answers its question."""
    ours, its = pty.openpty()
    try:
        os.write(ours, answer.encode())
        return subprocess.run(
            [COMMAND, *arguments], stdin=its, capture_output=True, text=True, check=False
        )
    finally:
        os.close(ours)
        os.close(its)


def objects(result: Result, code: int = 0) -> list[dict[str, Any]]:
    """Return the JSON objects that a command printed, each on a line."""
    assert result.returncode == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def failure(result: Result) -> str:
    """Return the error of a command, which says nothing else."""
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    words = [one for one in result.args if one != COMMAND]
    start = f"sparkinesis {' '.join(words[: 1 + (words[0] == 'queues')])}: "
    assert result.stderr.startswith(start)
    return result.stderr.removeprefix(start)
