"""What commands share: options and what a shell completes, help and usage, errors, JSON objects.

Help is plain text that fits into 80 columns. Typer's own keeps the line breaks of docstrings, shows
Python's types, and differs from version to version.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from sparkinesis.errors import OptionError, SparkinesisError, printable

_PATIENCE = 1.0
"""Seconds for the answers to one press of the tab key."""
_MOST_PAGES = 10
_BREAKS = re.compile(r"[:=]+")
"""The signs that are words of their own to bash, as in ``http : //127.0.0.1 : 4566``."""
_BESIDE = ("-CoordinatorState", "-WorkerMetricStats")
"""The ends of the names of a KCL 3's tables beside its lease table."""


def application_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tables, which those of applications are."""
    endpoint = ctx.params.get("dynamodb_endpoint") or ctx.params.get("endpoint")
    tables = _asked(ctx, incomplete, "dynamodb", endpoint, ("list_tables", "TableNames"))
    return [name for name in tables if not name.endswith(_BESIDE)]


def stream_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of streams."""
    endpoint = ctx.params.get("endpoint")
    return _asked(ctx, incomplete, "kinesis", endpoint, ("list_streams", "StreamNames"))


def profile_names(incomplete: str) -> list[str]:
    """Return the names of the profiles in ~/.aws."""
    with suppress(Exception):
        import botocore.session  # noqa: PLC0415 - slow to import

        names = botocore.session.Session().available_profiles
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def _asked(
    ctx: typer.Context, incomplete: str, service: str, endpoint: str | None, call: tuple[str, str]
) -> list[str]:
    region, profile = ctx.params.get("region"), ctx.params.get("profile")
    with suppress(Exception):
        pages = _pages(service, profile, region, endpoint, call)
        names = _within(_PATIENCE, lambda: pages)
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def _pages(
    service: str,
    profile: str | None,
    region: str | None,
    endpoint: str | None,
    call: tuple[str, str],
) -> Iterator[Sequence[str]]:
    from sparkinesis.stream.address import CredentialSource  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.calls.session import client_of, open_session  # noqa: PLC0415

    session = open_session(CredentialSource(profile), region, endpoint)
    if "mfa_serial" in session.get_scoped_config():
        return  # botocore would ask for a code on the terminal
    client = client_of(session, service, endpoint, read_timeout=_PATIENCE)
    operation, field = call
    answers: Iterable[Any] = client.get_paginator(operation).paginate()
    for answer, _ in zip(answers, range(_MOST_PAGES), strict=False):
        yield answer[field]


def _within(seconds: float, pages: Callable[[], Iterable[Sequence[str]]]) -> list[str]:
    """Return the contents of the pages that arrive within some seconds."""
    names: list[str] = []

    def gather() -> None:
        with suppress(Exception):
            for page in pages():
                names.extend(page)

    thread = threading.Thread(target=gather, daemon=True)  # an answer may never come
    thread.start()
    thread.join(seconds)
    return list(names)


def _join_words_of_bash() -> None:
    """Put together the words of the command line that bash has split at colons and equal signs.

    Bash passes its words in the environment, from which typer reads them.
    """
    if "COMP_WORDS" in os.environ:
        words, at = os.environ["COMP_WORDS"].split("\n"), int(os.environ.get("COMP_CWORD", "0"))
        words, at = joined(words, at)
        os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(at)}


def joined(words: Sequence[str], at: int) -> tuple[list[str], int]:
    """Return the words before bash's split, and the place of the one that had been ``at``."""
    found: list[str] = []
    place = at
    continues = False
    for number, word in enumerate(words):
        is_break = bool(_BREAKS.fullmatch(word))
        if found and (is_break or continues):
            found[-1] += word
        else:
            found.append(word)
        continues = is_break
        if number == at:
            place = len(found) - 1
    return found, place if at < len(words) else at - len(words) + len(found)


WHERE = "Where"
"""The panel of the options that say where streams and tables are."""

AppName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="The application name, which is also the name of its lease table.",
        autocompletion=application_names,
    ),
]
StreamName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STREAM", help="The stream: a name or an ARN.", autocompletion=stream_names
    ),
]
Region: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        rich_help_panel=WHERE,
        help="The AWS region. Default: the environment's region.",
    ),
]
Endpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL", rich_help_panel=WHERE, help="URL of Kinesis and DynamoDB, if not AWS's."
    ),
]
KinesisEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        rich_help_panel=WHERE,
        help="URL of Kinesis, if it is not AWS's.",
    ),
]
DynamoDBEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dynamodb-endpoint",
        metavar="URL",
        rich_help_panel=WHERE,
        help="URL of DynamoDB, if it differs from --endpoint.",
    ),
]
Streams: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="STREAM",
        autocompletion=stream_names,
        help="The stream that the application reads, to show its lag: a name or an ARN. Of an "
        "application of several: shows only this stream; repeatable; a name, an ARN or "
        "ACCOUNT:NAME:EPOCH. Default: all streams that the leases name.",
    ),
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=WHERE,
        help="The AWS profile, from ~/.aws.",
        autocompletion=profile_names,
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
LeasesAsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for each lease at the end.")
]


def require_confirmable(*, is_confirmed: bool) -> None:
    """Raise `OptionError` if the user has to be asked for confirmation, and cannot be."""
    if not (is_confirmed or sys.stdin.isatty()):
        raise OptionError(
            "There is no terminal to ask for confirmation. Pass --yes to go ahead without it."
        )


@contextmanager
def errors_in_one_line(command: str, *, ends_by_ctrl_c: bool = False) -> Iterator[None]:
    """Turn an error into its text on stderr and exit code 1; a decorator of commands.

    A command ends with code 0 if its output is no longer read.
    ``ends_by_ctrl_c``: the command runs until Ctrl-C, which is no error.
    """
    try:
        yield
    except SparkinesisError as error:
        typer.echo(f"sparkinesis {command}: {printable(str(error), lines=True)}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        if not ends_by_ctrl_c:
            raise
    except BrokenPipeError:
        # The reader of the output has enough, as `head` has. Python would print an error later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print each object as a line of JSON."""
    for one in objects:
        typer.echo(json.dumps(one))


SETTINGS = {"help_option_names": ["--help", "-h"]}
"""The settings of a Typer by which ``-h`` shows help, too."""
_WIDTH = 77
"""The most columns, besides the two by which a section is indented."""
_FIXED = "\N{NO-BREAK SPACE}"
"""Stands for a space at which no line ends."""
_COLUMN = 30
"""The widest first column; a longer name has a line of its own."""


class PlainCommand(TyperCommand):
    """A command whose help has aligned columns."""

    def get_help(self, ctx: Any) -> str:
        return _help_of(self, ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *_usage(self.get_params(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_params(self.get_params(ctx), ctx, formatter)


class PlainGroup(TyperGroup):
    """A command of commands, which it lists by their panels."""

    def main(self, *args: Any, **options: Any) -> Any:
        _join_words_of_bash()
        return super().main(*args, **options)

    def get_help(self, ctx: Any) -> str:
        return _help_of(self, ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's name
        return ["COMMAND", "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", None) or "Commands")
            panels.setdefault(panel, []).append((name, _first_line(command.help or "")))
        width = max(len(name) for name in self.commands)
        for panel, rows in panels.items():
            _write_rows(formatter, panel, [(name.ljust(width), text) for name, text in rows])
        _write_params(self.get_params(ctx), ctx, formatter)


def _help_of(command: TyperCommand | TyperGroup, ctx: Any) -> str:
    formatter = ctx.make_formatter()
    formatter.width = min(formatter.width, _WIDTH)
    command.format_help(ctx, formatter)
    return str(formatter.getvalue()).rstrip("\n").replace(_FIXED, " ")


def _usage(params: Iterable[Any]) -> Iterator[str]:
    for param in params:
        if param.param_type_name == "argument":
            is_bare = param.required or param.metavar.startswith("[")
            yield param.metavar if is_bare else f"[{param.metavar}]"


def _write_params(params: Sequence[Any], ctx: typer.Context, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in params:
        is_argument = param.param_type_name == "argument"
        panel = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or "Options"
        if not getattr(param, "hidden", False):
            panels.setdefault(panel, []).append((_names(param), _text(param, ctx)))
    for name, rows in panels.items():
        _write_rows(formatter, name, rows)


def _write_rows(formatter: Any, name: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(name):
            formatter.write_dl(rows, col_max=_COLUMN)


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar)
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return f"{names} / {', '.join(param.secondary_opts)}"
    if param.is_flag:
        return names
    return f"{names} {param.metavar or ('N' if isinstance(param.default, int) else 'TEXT')}"


def _text(param: Any, ctx: typer.Context) -> str:
    notes = []
    if param.required:
        notes.append("required")
    elif default := _default(param, ctx):
        notes.append(f"default: {default}")
    note = f"[{', '.join(notes)}]" if notes else ""
    return "  ".join(filter(None, (param.help, note.replace(" ", _FIXED))))


def _default(param: Any, ctx: typer.Context) -> str:
    """Return the text of a parameter's default; "" if there is none, or none worth showing."""
    if isinstance(param.show_default, str):
        return param.show_default
    value = param.get_default(ctx, call=False)
    if param.is_eager or value is None or not param.show_default:
        return ""
    if isinstance(value, bool):
        return (param.opts if value else param.secondary_opts)[0] if param.secondary_opts else ""
    if isinstance(value, Enum):
        value = value.value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _first_line(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
