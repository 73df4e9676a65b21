"""The figures of a checkout. Each has the names behind it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.handing_on import handing_on, public_names
from tests.house.modules import Module, attributes, is_frozen, read_modules
from tests.house.public import PAGES

FEW_LINES = 40
SHORT = 100
LONG = 400
MANY_ATTRIBUTES = 12
_OPTIONS = ("Options", "Settings")
"""How the names of classes end that hold a user's options, one attribute each."""
_ROWS = {"Lease": "leases, whose columns are the KCL's and ours"}
"""Frozen classes whose fields are the columns of a table: of which rows."""


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str = ""
    names: Sequence[str] = ()
    """What was counted, such as the names of modules."""


def figures(root: Path) -> list[Figure]:
    """Measure the checkout at ``root``."""
    modules = read_modules(root / "src")
    return [
        *_sizes(modules),
        *_doubles(modules),
        *_classes_and_functions(modules),
        _comments(modules),
        Figure("CONTRIBUTING", round((root / "CONTRIBUTING.md").stat().st_size / 1000, 1), "kB"),
        _without_test(root, modules),
        *(
            Figure(f"lines of {folder}", _lines(root / folder, endings))
            for folder, endings in (
                ("src", {".py"}),
                ("tests", {".py"}),
                ("benchmarks", {".py"}),
                ("docs", {".md", ".py"}),
            )
        ),
    ]


def walks_of(root: Path) -> list[Figure]:
    """Record the walks of the package of a checkout, in a process of its own."""
    output = subprocess.run(
        [sys.executable, "-m", "tests.house.walks"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    found: dict[str, list[str]] = json.loads(output)
    return [
        Figure(f"files that work for a {name}", len(files), names=files)
        for name, files in found.items()
    ]


def _sizes(modules: Sequence[Module]) -> list[Figure]:
    # Users import a module of `PAGES` by its name: it stands by itself, however short.
    rooms = [each for each in modules if not (each.is_package or each.name in PAGES)]
    alone = [each for each in rooms if len(each.importers) == 1 and each.code_lines < SHORT]
    return [
        Figure("modules in src", len(modules)),
        _counted(
            f"under {FEW_LINES} lines of code, __init__ and public modules aside",
            (each.name for each in rooms if each.code_lines < FEW_LINES),
        ),
        _counted(
            f"with one importer and under {SHORT} lines of code", (each.name for each in alone)
        ),
        _counted(f"above {LONG} lines", (each.name for each in modules if each.lines > LONG)),
    ]


def _doubles(modules: Sequence[Module]) -> list[Figure]:
    classes = Counter(node.name for module in modules for node in module.classes())
    files = Counter(each.path.stem for each in modules if not each.path.stem.startswith("__"))
    return [
        _counted(
            "names of public classes that stand for two or more",
            (name for name, count in classes.items() if count > 1 and not name.startswith("_")),
        ),
        _counted(
            "names of modules that stand twice",
            (name for name, count in files.items() if count > 1),
        ),
    ]


def _classes_and_functions(modules: Sequence[Module]) -> list[Figure]:
    # Others name the fields of a frozen class that is public, or a row: none of them can leave.
    fixed = {name for module in modules for name in public_names(module)} | _ROWS.keys()
    sizes = {
        f"{module.name}.{node.name}": len(attributes(node))
        for module in modules
        for node in module.classes()
        if not (node.name.endswith(_OPTIONS) or (node.name in fixed and is_frozen(node)))
    }
    large = sorted(
        (name for name, size in sizes.items() if size > MANY_ATTRIBUTES),
        key=lambda name: -sizes[name],
    )
    needless, demanded = handing_on(modules)
    return [
        Figure(
            f"classes with more than {MANY_ATTRIBUTES} attributes, options and fixed values aside",
            len(large),
            names=[f"{name} {sizes[name]}" for name in large],
        ),
        Figure("attributes of the largest class", max(sizes.values(), default=0), names=large[:1]),
        _counted("functions that only hand on", needless),
        _counted(
            "functions that hand on, as Python, a protocol or the public API demands", demanded
        ),
    ]


def _comments(modules: Sequence[Module]) -> Figure:
    code = sum(module.code_lines for module in modules)
    share = 100 * sum(module.comment_lines for module in modules) / code if code else 0.0
    return Figure("comment lines by code lines", round(share, 1), "%")


def _without_test(root: Path, modules: Sequence[Module]) -> Figure:
    """Ask the checkout's own `make check`, which finds a unit test or the nearest tests."""
    spec = importlib.util.spec_from_file_location("check_of_checkout", root / "tests" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    nearest = getattr(check, "nearest", check.its_test)
    rooms = [each for each in modules if not each.path.stem.startswith("__")]
    return _counted(
        f"of {len(rooms)} modules, those without a test in `make check`",
        (each.name for each in rooms if not nearest(each.path.relative_to(root))),
    )


def _counted(name: str, names: Iterable[str]) -> Figure:
    found = sorted(names)
    return Figure(name, len(found), names=found)


def _lines(folder: Path, endings: set[str]) -> int:
    return sum(
        len(path.read_text("utf-8").splitlines())
        for path in folder.rglob("*")
        if path.suffix in endings and path.is_file()
    )
