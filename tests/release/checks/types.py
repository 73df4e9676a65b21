"""The types of public names, as Pyright sees them in the installed wheel (``--verifytypes``)."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.release.checks import machine
from tests.release.checks.check import CheckError, require

PAGES = (
    "",
    ".errors",
    ".events",
    ".functions",
    ".local",
    ".metrics",
    ".sinks",
    ".status",
    ".testing",
)
"""The public pages of the package."""

_UNDECLARED = ("missing type annotation", "missing return", "Ambiguous base class override")
"""What Pyright says of a symbol whose own type is not declared. It also says of a declared type
that it is partially unknown, if there is an undeclared one far inside, in a private module."""


def verify(wheel: Path) -> str:
    """Check that the type of each public name is declared. Raises `CheckError`."""
    machine.FOLDER.mkdir(parents=True, exist_ok=True)
    answer = machine.run(
        machine.UV,
        "tool",
        "run",
        *("--from", "pyright", "--with", wheel, "pyright"),
        *("--verifytypes", "sparkinesis", "--ignoreexternal", "--outputjson"),
        cwd=machine.FOLDER,
        accepted=(0, 1),
    )
    try:
        found = json.loads(answer[answer.index("{") :])["typeCompleteness"]
    except (KeyError, ValueError):
        raise CheckError(f"Pyright says: {answer.strip()[:500]}") from None
    names = public_names()
    symbols = [one for one in found["symbols"] if is_public(one["name"], names)]
    if len(symbols) < len(names):
        raise CheckError(f"Pyright knows {len(symbols)} symbols of {len(names)} public names")
    require(problems(symbols))
    score = found["completenessScore"]
    return (
        f"all {len(symbols):,} symbols of {len(names)} public names are declared; "
        f"{score:.1%} with the private modules"
    )


def public_names() -> set[str]:
    """Return the public names, each with the module that defines it."""
    found = set()
    for page in PAGES:
        module = importlib.import_module(f"sparkinesis{page}")
        for name in names_of(module):
            found.add(f"{home_of(getattr(module, name), module.__name__)}.{name}")
    return found


def names_of(page: ModuleType) -> list[str]:
    """Return the public names of a page; without ``__all__``, what the page defines itself."""
    listed: list[str] | None = getattr(page, "__all__", None)
    if listed is not None:
        return listed
    own = {name: getattr(thing, "__module__", None) for name, thing in vars(page).items()}
    return [name for name, where in own.items() if where == page.__name__ and name[0] != "_"]


def home_of(thing: object, page: str) -> str:
    """Return the module that defines a name, which ``__module__`` does not tell: see `public`."""
    if inspect.isfunction(thing):
        return str(thing.__globals__["__name__"])
    homes = (
        [
            str(each.__globals__["__name__"])
            for each in vars(thing).values()
            if inspect.isfunction(each)
        ]
        if isinstance(thing, type)
        else []
    )
    return next((home for home in homes if home.startswith("sparkinesis.")), page)


def is_public(symbol: str, names: Iterable[str]) -> bool:
    """Return True for a public name and all that is inside of it."""
    return any(symbol == name or symbol.startswith(f"{name}.") for name in names)


def problems(symbols: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the symbols whose own types are not declared, and what Pyright says of them."""
    return [
        f"{one['name']}: {each['message'].splitlines()[0]}"
        for one in symbols
        for each in one["diagnostics"]
        if any(text in each["message"] for text in _UNDECLARED)
    ]
