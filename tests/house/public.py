"""Compares what users of two checkouts can name: nothing that they use is lost unawares.

python -m tests.house.public ../another-checkout     # what is lost since then, and what is new

Compared are the public modules' names with their parameters, defaults, fields and methods, the
source's options, the commands with their options, and the metrics with their names in each system.
Ends with 1 if something is lost. Each checkout is read in a process of its own, by this
environment's Python.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main

ROOT = Path(__file__).parents[2]
PAGES = [
    "sparkinesis",
    "sparkinesis.errors",
    "sparkinesis.events",
    "sparkinesis.functions",
    "sparkinesis.local",
    "sparkinesis.metrics",
    "sparkinesis.payloads",
    "sparkinesis.sinks",
    "sparkinesis.status",
    "sparkinesis.testing",
    "sparkinesis.compat.kclpy.kcl",
    "sparkinesis.compat.kclpy.messages",
    "sparkinesis.compat.kclpy.v2.processor",
    "sparkinesis.compat.kclpy.v3.processor",
]
"""The modules that documents import from."""


def names_of_page(page: ModuleType) -> Iterator[str]:
    """Yield a line for each public name of a module, and for what it consists of."""
    for name in getattr(page, "__all__", None) or defined_by(page):
        if name.startswith("_"):
            continue
        thing = getattr(page, name)
        yield f"{page.__name__}.{name}"
        yield from (f"{page.__name__}.{name}{rest}" for rest in _parts(thing))


def defined_by(page: ModuleType) -> list[str]:
    """Return the names of a page without ``__all__``: the classes that the module defines."""
    return [
        name
        for name, thing in vars(page).items()
        if isinstance(thing, type) and thing.__module__ == page.__name__
    ]


def _parts(thing: object) -> Iterator[str]:
    if callable(thing):
        yield from _parameters(thing)
    if isinstance(thing, type):
        yield from (f"({base.__name__})" for base in thing.__mro__[1:-1] if _is_public(base))
        for name, member in inspect.getmembers(thing):
            if name.startswith("_"):
                continue
            yield f".{name}"
            if inspect.isroutine(member):
                yield from (f".{name}{rest}" for rest in _parameters(member))


def _is_public(base: type) -> bool:
    return base.__module__ in PAGES or base.__module__ == "builtins"


def _parameters(thing: Any) -> Iterator[str]:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):  # of a class in C
        return
    for parameter in signature.parameters.values():
        if not parameter.name.startswith("_") and parameter.name != "self":
            yield f"({parameter.name}{_default(parameter.default)})"


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f"={value!r}" if isinstance(value, bool | float | int | str) else "=..."


def options_of_source() -> Iterator[str]:
    """Yield the options of ``format("kinesis")``."""
    table = importlib.import_module("sparkinesis.source.options.option_table")
    yield from (f"option {name}" for name in table.OPTIONS)


def commands() -> Iterator[str]:
    """Yield each command with its arguments and options."""
    app = importlib.import_module("sparkinesis.cli.app").app
    yield from _commands("sparkinesis", typer.main.get_command(app))


def _commands(name: str, command: Any) -> Iterator[str]:
    yield name
    for parameter in command.params:
        for word in parameter.opts + parameter.secondary_opts:
            yield f"{name} {word}"
    for below, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {below}", inner)


def metrics() -> Iterator[str]:
    """Yield each metric with its labels and its names in Prometheus, CloudWatch, OpenTelemetry."""
    systems = [
        _first(f"sparkinesis.metrics.{home}" for home in homes).names_of
        for homes in _HOMES_OF_NAMES
    ]
    catalogue = importlib.import_module("sparkinesis.metrics.catalogue")
    for one in catalogue.CATALOGUE:
        yield f"metric {one.name} {one.kind.value} in {one.unit.value} by {', '.join(one.labels)}"
    for one in getattr(catalogue, "SCRAPED", catalogue.CATALOGUE):
        yield f"metric {one.prometheus_name}"
    for names_of in systems:
        for one in catalogue.CATALOGUE:
            for named in names_of(one):
                operation = f" of {named.operation}" if named.operation else ""
                yield f"metric {named.name}{operation}"


_HOMES_OF_NAMES = (
    ("cloudwatch.data", "cloudwatch.names"),
    ("instruments", "otel.instruments", "otel.names"),
)
"""The modules that name metrics in each system: today's, then those of older checkouts."""


def _first(names: Iterable[str]) -> Any:
    """Return the first of some modules that this checkout has."""
    return importlib.import_module(next(filter(importlib.util.find_spec, names)))


def everything() -> list[str]:
    """Return the lines of the checkout that this process imports."""
    lines = [*options_of_source(), *commands(), *metrics()]
    # An older checkout does not have each of them.
    for page in filter(importlib.util.find_spec, PAGES):
        lines += names_of_page(importlib.import_module(page))
    return sorted({*lines})


def read(root: Path) -> list[str]:
    """Return the lines of the checkout at ``root``."""
    code = "from tests.house.public import everything; import json; print(json.dumps(everything()))"
    # The script is this checkout's, the package is the other's.
    path = os.pathsep.join([str(root / "src"), str(ROOT)])
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    lines: list[str] = json.loads(output)
    return lines


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.house.public",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    parser.add_argument("after", nargs="?", type=Path, default=ROOT, help="default: this one")
    arguments = parser.parse_args(given)
    before, after = read(arguments.before.resolve()), read(arguments.after.resolve())
    lost, new = sorted({*before} - {*after}), sorted({*after} - {*before})
    print(f"{len(before):,} names before, {len(after):,} now")
    for title, lines in (("lost", lost), ("new", new)):
        print(f"{title}: {len(lines)}", *lines, sep="\n  ")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
