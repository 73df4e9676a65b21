"""The layer rule: imports point down only, and the core runs without pyspark (see CONTRIBUTING)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "sparkinesis"

MAY_IMPORT = {
    "public": set(),
    "errors": {"public"},
    "terminal": set(),
    "stream": {"errors"},
    "lease": {"errors", "stream", "terminal", "monitor", "cli"},
    "worker": {"errors", "stream", "lease", "fleet", "terminal"},
    "monitor": {"errors", "stream", "lease", "cli"},
    "fleet": {"errors", "stream", "lease", "worker", "terminal"},
    "source": {"errors", "stream", "lease"},
    "local": {"errors"},
    "compat": {"errors", "stream", "lease", "worker", "cli"},
    "cli": {"errors", "terminal", "stream", "lease", "worker", "monitor", "compat", "local"},
    "__init__": {"errors", "stream", "lease", "source", "worker", "fleet"},
}
"""Each layer, and the layers that it may import besides itself."""

MAY_IMPORT_PYSPARK = ("source/", "worker/fleet/", "fleet/", "worker/application.py", "__init__.py")
"""The last two name its types only."""

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def layer_of(module: str) -> str:
    return module.split("/", maxsplit=1)[0].removesuffix(".py")


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module
            if node.module == "sparkinesis":
                yield from (f"sparkinesis.{alias.name}" for alias in node.names)


def violations(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    allowed = MAY_IMPORT[layer] | {layer, "public"}
    found = []
    for name in imports(source):
        package, *rest = name.split(".")
        if package == "sparkinesis" and rest and rest[0] not in allowed and rest[0] in MAY_IMPORT:
            found.append(f"{module} ({layer}) imports {name}")
        if package == "pyspark" and not module.startswith(MAY_IMPORT_PYSPARK):
            found.append(f"{module} imports pyspark")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down_only(module: str) -> None:
    assert layer_of(module) in MAY_IMPORT, "a new layer needs a line in the layer rule"
    assert violations(module, (ROOT / module).read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("stream/calls/client.py", "from sparkinesis.source.options.option_table import OPTIONS"),
        (
            "source/reading/read_task.py",
            "def f():\n    import sparkinesis.worker.lifecycle.consumer",
        ),
        ("worker/lifecycle/consumer.py", "from sparkinesis import source"),
        ("lease/rules/taker.py", "from pyspark.sql import SparkSession"),
        ("local/wire/server.py", "from sparkinesis.stream.calls.client import StreamClient"),
    ],
)
def test_the_rule_catches_what_it_forbids(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1
