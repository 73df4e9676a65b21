"""The layer rule: imports point down only, and the core runs without pyspark (see CONTRIBUTING)."""

from __future__ import annotations

import ast
import functools
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "sparkinesis"

LAYERS: dict[str, set[str]] = {
    "cli": {
        "application",
        "fleet",
        "terminal",
        "errors",
        "stream",
        "queue",
        "lease",
        "worker",
        "compat",
        "local",
        "metrics",
        "monitor",
        "ui",
        "public",
    },
    "testing": {
        "public",
        "events",
        "status",
        "stream",
        "lease",
        "worker",
        "queue",
        "application",
        "source",
        "local",
    },
    "ui": {"terminal", "errors", "status", "stream", "lease", "worker", "fleet", "monitor"},
    "monitor": {"terminal", "errors", "metrics", "stream", "lease", "queue", "public"},
    "fleet": {"terminal", "public", "errors", "status", "metrics", "lease", "worker"},
    "compat": {"errors", "stream", "worker", "application"},
    "application": {"public", "errors", "status", "metrics", "stream", "worker", "fleet"},
    "queue": {
        "public",
        "errors",
        "events",
        "status",
        "metrics",
        "stream",
        "lease",
        "worker",
        "fleet",
    },
    "queue page": {"queue"},
    "worker": {"public", "errors", "events", "status", "metrics", "stream", "lease"},
    "source": {"public", "errors", "status", "metrics", "stream", "lease"},
    "lease": {"public", "errors", "events", "metrics", "stream"},
    "stream": {"public", "errors", "metrics"},
    "metrics": {"public", "errors"},
    "local": {"errors"},
    "terminal": {"errors"},
    "events": {"errors", "status"},
    "errors": set(),
    "status": set(),
    "functions": {"errors", "payloads"},
    "payloads": set(),
    "sinks": {"worker"},
    "public": set(),
    "__init__": {
        "application",
        "errors",
        "events",
        "status",
        "sinks",
        "functions",
        "payloads",
        "public",
        "metrics page",
        "queue page",
        "stream",
        "lease",
        "worker",
        "source",
        "fleet",
    },
    "metrics page": {"metrics", "worker"},
}
"""Each layer, and the layers that it imports besides itself.

``__init__`` holds the public names.
"""

PAGES = {"metrics/__init__.py": "metrics page", "queue/__init__.py": "queue page"}
"""Public pages that are layers of their own, above the folder whose name they have."""

FOLDERS: dict[str, dict[str, set[str]]] = {
    "stream": {
        "calls": set(),
        "kpl": set(),
        "reading": {"calls", "kpl"},
        "fan_out": {"calls", "reading"},
    },
    "stream/calls": {"answers": set(), "direct": {"answers"}},
    "lease": {
        "table": set(),
        "rules": {"table"},
        "moving": {"table", "rules"},
        "assignment": {"table", "rules"},
        "shards": {"table", "rules", "moving"},
    },
    "worker": {
        "batches": set(),
        "reporting": set(),
        "sink": set(),
        "retrieval": {"reporting"},
        "processors": {"batches", "sink"},
        "dead_letters": {"batches", "processors", "reporting", "sink"},
        "lifecycle": {
            "batches",
            "processors",
            "reporting",
            "sink",
            "retrieval",
            "dead_letters",
        },
        "supervision": {"lifecycle", "reporting"},
    },
    "worker/lifecycle": {"streams": set(), "shard": set()},
    "monitor": {"doctor": set()},
    "metrics": {"cloudwatch": set(), "health": set()},
    "source": {
        "options": set(),
        "planning": {"options"},
        "reading": {"options"},
    },
    "source/planning": {"probing": set()},
    "cli": {"running": set(), "streams": set(), "queues": {"streams"}},
    "compat": {"kclpy": set()},
    "compat/kclpy": {"v2": set(), "v3": {"v2"}},
    "local": {
        "java": set(),
        "model": set(),
        "encoding": {"model"},
        "operations": {"encoding", "model"},
        "wire": {"encoding", "model"},
    },
}
"""The sub-folders of each folder, and the sibling sub-folders that each of them imports.

A sub-folder also imports the modules that lie directly in the folder above it.
"""

MOST_ENTRIES = 14
"""Modules and sub-folders that one folder shows, `__init__.py` not counted."""
MOST_LAYERS = 22
"""The same for ``sparkinesis`` itself: the layers, the modules below them all, and public pages."""

IMPORT_PYSPARK = ("source/", "fleet/", "functions.py", "testing/sandbox.py")
NAME_PYSPARK = ("application.py", "queue/application.py", "__init__.py")
"""Modules that import pyspark's types for type checkers only."""

COMPUTE_NAMES = ("__init__.py", *PAGES, "cli/running/run.py")
"""Modules that import by names which they compute, or which a user gives; no other import is hidden
from this test."""

SHOW_NAMES = ("public.py",)
"""Modules whose texts are names of pages that they show, and import nothing."""

_MODULE = re.compile(r"(sparkinesis(\.\w+)+)(:\w+)?")
_IMPORTERS = {"import_module", "__import__"}


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    name: str
    is_for_typing: bool = False
    """True under ``if TYPE_CHECKING:``."""
    is_relative: bool = False
    is_text: bool = False
    """True for a text that may be the name of a module, whoever imports by it."""
    is_computed: bool = False


class _Imports(ast.NodeVisitor):
    """Finds imports wherever they stand: in functions, for type checkers, and by a text."""

    def __init__(self) -> None:
        self.found: list[Import] = []
        self._is_for_typing = False

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [Import(alias.name, self._is_for_typing) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            self.found.append(Import(name, self._is_for_typing, is_relative=node.level > 0))

    def visit_If(self, node: ast.If) -> None:
        before = self._is_for_typing
        self._is_for_typing = before or last_name(node.test) == "TYPE_CHECKING"
        for child in node.body:
            self.visit(child)
        self._is_for_typing = before
        for child in node.orelse:
            self.visit(child)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and (named := _MODULE.fullmatch(node.value)):
            self.found.append(Import(named[1], is_text=True))

    def visit_Call(self, node: ast.Call) -> None:
        if last_name(node.func) not in _IMPORTERS:
            self.generic_visit(node)
        elif node.args and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value)
            self.found.append(Import(text, is_relative=text.startswith(".")))
        else:
            name = ast.unparse(node.func)
            self.found.append(Import(f"what {name} is given", is_computed=True))

    def visit_Name(self, node: ast.Name) -> None:
        self._visit_reference(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._visit_reference(node, node.attr)

    def _visit_reference(self, node: ast.expr, name: str) -> None:
        """A function that imports may be called under another name."""
        if name in _IMPORTERS:
            self.found.append(Import(f"what {name} is given", is_computed=True))
        self.generic_visit(node)


def last_name(node: ast.expr) -> str | None:
    """Return ``c`` of ``a.b.c``; None for what is no name."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


@functools.cache
def imports_in(source: str) -> list[Import]:
    visitor = _Imports()
    visitor.visit(ast.parse(source))
    return visitor.found


def imports_of(path: Path) -> list[Import]:
    return imports_in(path.read_text(encoding="utf-8"))


def modules_below(root: Path) -> list[str]:
    """The paths of all modules, relative to ``root``."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))


def resolved(modules: Container[str], name: str) -> str | None:
    """The path of the module that a name of the package stands in; None for other packages."""
    package, *parts = name.split(".")
    if package != "sparkinesis":
        return None
    while parts:
        module = "/".join(parts)
        for path in (f"{module}.py", f"{module}/__init__.py"):
            if path in modules:
                return path
        parts.pop()
    return "__init__.py"


def layer_of(module: str) -> str:
    return PAGES.get(module) or module.split("/", maxsplit=1)[0].removesuffix(".py")


def folders_of(module: str) -> list[str]:
    """The folders around a module, from the outermost."""
    parts = module.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def siblings(importer: str, imported: str) -> tuple[str, str, str] | None:
    """The innermost folder around both modules, and the sub-folder of each, if both are in one."""
    for mine, other in zip(folders_of(importer), folders_of(imported), strict=False):
        if mine != other:
            above, _, name = mine.rpartition("/")
            return (above, name, other.rpartition("/")[2]) if above else None
    return None


def within_circles(graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The graph without the nodes that import nothing, and those that import only such nodes."""
    left = {node: set(others) for node, others in graph.items()}
    while leaves := [node for node, others in left.items() if not others & left.keys()]:
        for node in leaves:
            del left[node]
    return left


def circles(graph: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Each group of nodes that import one another, sorted (the strongly connected ones)."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(graph.get(start, ()))
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                ahead.extend(graph.get(node, ()))
        return seen

    graph = within_circles(graph)
    reach = {node: reachable(node) for node in graph}
    reported: set[str] = set()
    for node in sorted(graph):
        circle = sorted(other for other in reach[node] if node in reach.get(other, ()))
        if circle and node not in reported:
            reported.update(circle)
            yield circle


def outside_of_the_plan(module: str) -> Iterator[str]:
    if layer_of(module) not in LAYERS:
        yield f"{module} is outside of the plan: {layer_of(module)} is not in LAYERS"
    for folder in folders_of(module)[1:]:
        above, _, name = folder.rpartition("/")
        if name not in FOLDERS.get(above, {}):
            yield f"{module} is outside of the plan: {folder} is not in FOLDERS"


def wrong_import(module: str, target: str, one: Import) -> str | None:
    layer, other = layer_of(module), layer_of(target)
    if other != layer and other not in LAYERS.get(layer, set()):
        return f"{module} ({layer}) imports {one.name}"
    pair = siblings(module, target)
    if pair is not None:
        above, mine, its = pair
        if its not in FOLDERS.get(above, {}).get(mine, set()):
            return f"{module} ({above}/{mine}) imports {one.name}"
    return None


def wrong_pyspark(module: str, one: Import) -> str | None:
    if one.name.split(".")[0] != "pyspark" or module.startswith(IMPORT_PYSPARK):
        return None
    if module in NAME_PYSPARK and one.is_for_typing:
        return None
    return f"{module} imports {one.name}"


def violations(root: Path) -> list[str]:
    """Everything in the tree below ``root`` that breaks the layer rule."""
    modules = modules_below(root)
    known = set(modules)
    found = [text for module in modules for text in outside_of_the_plan(module)]
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module in modules:
        for one in imports_of(root / module):
            if one.is_relative:
                found.append(f"{module} has a relative import of {one.name}")
            text = wrong_pyspark(module, one)
            if one.is_computed and module not in COMPUTE_NAMES:
                found.append(f"{module} imports {one.name}")
            target = resolved(known, one.name)
            if one.is_text and (target == "__init__.py" or module in SHOW_NAMES):
                target = None  # it names no module, or imports none
            if target is not None:
                graph[module].add(target)
                text = wrong_import(module, target, one)
            if text is not None:
                found.append(text)
    found += [f"circle: {' <-> '.join(circle)}" for circle in circles(graph)]
    for folder in {"", *(folder for module in modules for folder in folders_of(module))}:
        entries = {
            path.name for path in (root / folder).iterdir() if path.suffix == ".py" or path.is_dir()
        } - {"__init__.py", "__pycache__"}
        if len(entries) > (MOST_ENTRIES if folder else MOST_LAYERS):
            found.append(f"{folder or 'sparkinesis'} shows {len(entries)} entries")
    return sorted(set(found))


def test_imports_point_down_only() -> None:
    assert violations(ROOT) == []


def test_each_table_of_the_plan_is_free_of_circles() -> None:
    assert list(circles(LAYERS)) == []
    for folder, table in FOLDERS.items():
        assert list(circles(table)) == [], folder


def test_the_plan_names_nothing_that_does_not_exist() -> None:
    """A folder or a permission that nobody uses goes."""
    modules = set(modules_below(ROOT))
    edges = {
        (module, target)
        for module in modules
        for one in imports_of(ROOT / module)
        if (target := resolved(modules, one.name)) is not None
    }
    layers = {(layer_of(module), layer_of(target)) for module, target in edges}
    assert {(one, other) for one, those in LAYERS.items() for other in those} <= layers
    folders = {pair for edge in edges if (pair := siblings(*edge)) is not None}
    for folder, table in FOLDERS.items():
        for name, others in table.items():
            assert (ROOT / folder / name).is_dir(), f"{folder}/{name}"
            assert {(folder, name, other) for other in others} <= folders


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, in which a test plants a mistake."""
    copy = tmp_path / "sparkinesis"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def plant(tree: Path, module: str, *sources: str) -> None:
    """Add lines to a module, which may be new."""
    path = tree / module
    path.parent.mkdir(exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text("\n".join((before, *sources, "")))


PLANTED = {
    "stream/shard.py": {
        "from sparkinesis.lease.lease import Lease": "imports sparkinesis.lease.lease.Lease",
        "if TYPE_CHECKING:\n    import sparkinesis.fleet.fleet": "imports sparkinesis.fleet.fleet",
        "def f(name):\n    importlib.import_module(name)": "what importlib.import_module is given",
        'x = __import__(f"sparkinesis.{name}")': "imports what __import__ is given",
        "load = importlib.import_module": "imports what import_module is given",
        'importlib.import_module(".page", __package__)': "has a relative import of .page",
        "from .page import Page": "has a relative import of page.Page",
    },
    "worker/status.py": {
        "def f():\n    import sparkinesis.source.offsets": "imports sparkinesis.source.offsets",
        "from sparkinesis import source": "imports sparkinesis.source",
        'def f():\n    return import_module("sparkinesis.application")': (
            "imports sparkinesis.application"
        ),
        "if TYPE_CHECKING:\n    import pyspark.sql": "imports pyspark.sql",
    },
    "stream/kpl/new.py": {
        "import sparkinesis.stream.reading.shard_cursor": (
            "(stream/kpl) imports sparkinesis.stream.reading.shard_cursor"
        ),
    },
    "application.py": {"def f():\n    import pyspark.sql": "imports pyspark.sql"},
    "terminal/live.py": {"import sparkinesis": "imports sparkinesis"},
    "new.py": {"": "is outside of the plan: new is not in LAYERS"},
    "lease/helpers/new.py": {"": "is outside of the plan: lease/helpers is not in FOLDERS"},
    "stream/kpl/helpers/new.py": {"": "helpers is not in FOLDERS"},
}
"""Mistakes in modules, and the end of what is found of each."""


def test_planted_mistakes_are_found(tree: Path) -> None:
    for module, mistakes in PLANTED.items():
        plant(tree, module, *mistakes)
    found = violations(tree)
    for module, mistakes in PLANTED.items():
        own = [text for text in found if text.startswith(f"{module} ")]
        for mistake, end in mistakes.items():
            assert any(text.endswith(end) for text in own), (module, mistake)


HIDDEN = [
    "def f():\n    import sparkinesis.stream.one",
    "def f():\n    from sparkinesis.stream.one import x",
    "if TYPE_CHECKING:\n    from sparkinesis.stream.one import X",
    'def f():\n    return importlib.import_module("sparkinesis.stream.one").x',
    'def f():\n    return import_module("sparkinesis.stream.one")',
    'x = __import__("sparkinesis.stream.one", fromlist=["x"])',
    'x = pkgutil.resolve_name("sparkinesis.stream.one:x")',
    'x = lambda: sys.modules["sparkinesis.stream.one"]',
]


def test_a_planted_circle_between_modules_is_found(tree: Path) -> None:
    """Neither import breaks the tables; the second is hidden."""
    for n, hidden in enumerate(HIDDEN):
        plant(tree, f"stream/one{n}.py", f"import sparkinesis.stream.two{n}")
        plant(tree, f"stream/two{n}.py", hidden.replace("stream.one", f"stream.one{n}"))
    circles_found = {f"circle: stream/one{n}.py <-> stream/two{n}.py" for n in range(len(HIDDEN))}
    assert circles_found <= set(violations(tree))


def test_a_crowded_folder_is_found(tree: Path) -> None:
    for n in range(MOST_ENTRIES):
        plant(tree, f"terminal/new_{n}.py")
    shown = len(list((tree / "terminal").glob("[!_]*.py")))
    assert violations(tree) == [f"terminal shows {shown} entries"]
