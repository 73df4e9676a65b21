"""The help and the usage of commands: plain text that fits into 80 columns.

Typer's own help keeps the line breaks of docstrings, shows Python's types, and differs from version
to version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sparkinesis.cli.line.completion import join_words_of_bash

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
        join_words_of_bash()
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
