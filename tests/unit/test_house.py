"""`python -m tests.house`: what it counts, on a small checkout."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.__main__ import main
from tests.house.figures import figures
from tests.house.handing_on import handing_on, only_hands_on
from tests.house.modules import Module, attributes
from tests.house.public import ROOT, names_of_page, read
from tests.house.walks import micro_batch

WIDE = "\n".join(f"        self.a{n} = {n}" for n in range(13))
FILES = {
    "CONTRIBUTING.md": "x" * 1234,
    "docs/page.md": "one\ntwo\n",
    "tests/check.py": "def its_test(path):\n    return path if path.stem == 'wide' else None\n",
    "src/p/__init__.py": '"""A package."""\n\nfrom p.wide import Row\n',
    "src/p/wide.py": f"class Row:\n    def __init__(self):\n{WIDE}\n",
    "src/p/row.py": '"""Rows."""\n\n# Why.\nimport os  # noqa\n# noqa\n\nclass Row:\n    pass\n',
    "src/p/long.py": "from p import row, wide\n" + "x = 1\n" * 400,
    "src/p/inner/row.py": "import p.long\n\nclass _Row:\n    pass\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_is_counted(checkout: Path) -> None:
    found = {one.name: one for one in figures(checkout)}
    few = "under 40 lines of code, __init__ and public modules aside"
    alone = "with one importer and under 100 lines"
    (one_importer,) = (one for name, one in found.items() if name.startswith(alone))
    assert {name: one.value for name, one in found.items()} == {
        "modules in src": 5,
        few: 3,
        one_importer.name: 1,
        "above 400 lines": 1,
        "names of public classes that stand for two or more": 1,
        "names of modules that stand twice": 1,
        "classes with more than 12 attributes, options and fixed values aside": 1,
        "attributes of the largest class": 13,
        "functions that only hand on": 0,
        "functions that hand on, as Python, a protocol or the public API demands": 0,
        "comment lines by code lines": round(100 * 1 / (401 + 15 + 3 + 3 + 1), 1),
        "CONTRIBUTING": 1.2,
        "of 4 modules, those without a test in `make check`": 3,
        "lines of src": 431,
        "lines of tests": 2,
        "lines of benchmarks": 0,
        "lines of docs": 2,
    }
    assert found[few].names == ["p.inner.row", "p.row", "p.wide"]
    assert one_importer.names == ["p.row"], "p.wide has two, p.long is long, p.inner.row has none"


FIELDS = "\n".join(f"    a{n}: int" for n in range(13))


@pytest.mark.parametrize(
    ("head", "is_left_aside"),
    [
        ("class Size:", False),
        ("class SizeOptions:", True),
        ("@public\nclass Size:", False),
        ("@dataclass(frozen=True)\nclass Size:", False),
        ("@public\n@dataclass(frozen=True)\nclass Size:", True),
        ("@public\n@dataclass(frozen=False)\nclass Size:", False),
        ("@public\nclass Size(msgspec.Struct, frozen=True):", True),
        ("class Lease(msgspec.Struct, frozen=True):", True),
        ("class Lease:", False),
    ],
)
def test_a_class_whose_fields_others_have_fixed_is_no_large_one(
    checkout: Path, head: str, *, is_left_aside: bool
) -> None:
    (checkout / "src/p/wide.py").write_text(f"{head}\n{FIELDS}\n")
    (large,) = (one for one in figures(checkout) if one.name.startswith("classes with more"))
    assert large.value == (not is_left_aside)


def test_a_module_that_users_import_stands_by_itself(checkout: Path) -> None:
    def small() -> list[float]:
        starts = ("under 40", "with one importer")
        return [one.value for one in figures(checkout) if one.name.startswith(starts)]

    (checkout / "src/sparkinesis").mkdir()
    (checkout / "src/p/wide.py").write_text("import sparkinesis.sinks, sparkinesis.sites\n")
    before = small()
    (checkout / "src/sparkinesis/sinks.py").write_text("x = 1\n")
    assert small() == before
    (checkout / "src/sparkinesis/sites.py").write_text("x = 1\n")
    assert small() == [one + 1 for one in before]


@pytest.mark.parametrize(
    ("importer", "name", "is_demanded"),
    [
        ("import inspect, p\nfound = [inspect.getmembers(one) for one in (p,)]", "f", True),
        ("import inspect, p\nfound = [inspect.getmembers(one) for one in (p,)]", "_f", False),
        ("import inspect, p\nfound = [inspect.getmembers(one) for one in (q,)]", "f", False),
        ("import p\nfound = [read(one) for one in (p,)]", "f", False),
    ],
)
def test_a_function_that_is_found_by_its_name_is_demanded(
    importer: str, name: str, *, is_demanded: bool
) -> None:
    module = Module("p", Path("p.py"), f"def {name}(a): g(a)", {"all"})
    needless, _ = handing_on([module, Module("all", Path("all.py"), importer)])
    assert (not needless) == is_demanded


def test_attributes_are_fields_and_what_methods_assign() -> None:
    source = """
class A:
    x: int
    y: ClassVar[int] = 1
    z = 2
    def f(self):
        self.w, other.v = 1, 2
        self.x += 1
"""
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert attributes(node) == {"x", "w"}


@pytest.mark.parametrize(
    ("source", "hands_on"),
    [
        ("def f(self, a): return self._b.f(a)", True),
        ("def f(self, a): 'Doc.'; g(a.b, key=1)", True),
        ("async def f(*a, **b): return await g(*a, **b)", True),
        ("def f(a): return g(a + 1)", False),
        ("def f(a): return g(other)", False),
        ("def f(a): return g()(a)", False),
        ("def f(a): return a", False),
        ("def f(a):\n  h()\n  return g(a)", False),
    ],
)
def test_a_function_that_only_hands_on(source: str, hands_on: bool) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert only_hands_on(node) == hands_on


PREAMBLE = """
import asyncio, functools
from typing import Protocol
class Link(Protocol):
    name: str
    def send(self, data): ...
class Opened(Protocol):
    def open(self): ...
class Base:
    def run(self): ...
"""


@pytest.mark.parametrize(
    ("source", "is_demanded"),
    [
        ("class A:\n def send(self, data): self.b.send(data)", False),
        ("def f(a): g(a)", False),
        ("f(1)\ndef f(a): g(a)", False),
        ("class A:\n def __len__(self): return len(self.b)", True),
        ("class A(Base):\n def run(self): self.b.run()", True),
        ("class A(Base):\n def walk(self): self.b.walk()", False),
        ("class A:\n name = ''\n def send(self, data): self.b.send(data)", True),
        ("class A(asyncio.Protocol):\n def data_received(self, data): self.b(data)", True),
        ("class A(asyncio.Protocol):\n def _received(self, data): self.b(data)", False),
        ("class A(Exception):\n def text(self): return str(self.b)", False),
        ("class A(msgspec.Struct):\n def text(self): return str(self.b)", False),
        ("class A:\n def open(self): self.b.open()", False),
        ("class A:\n def f(self): self.b()\n def g(self): later(self.f, [])", True),
        (
            "class A:\n @property\n def f(self): return len(self.b)\n def g(self): h(self.f, [])",
            False,
        ),
        ("def f(a): g(a)\nlater(f)", True),
        ("def f(a): g(a)\ndef h(other): later(other.f, [])", False),
        ("@functools.cache\ndef f(a): return g(a)", True),
        ("@public\nclass A:\n def f(self): self.b.f()", True),
        ("@public\nclass A:\n def _f(self): self.b.f()", False),
        ("class A:\n def f(self): self.b.f()\n@public\nclass B(A):\n pass", True),
        ("__all__ = ['f']\ndef f(a): g(a)", True),
    ],
)
def test_what_demands_a_function_that_only_hands_on(source: str, *, is_demanded: bool) -> None:
    needless, demanded = handing_on([Module("p", Path("p.py"), PREAMBLE + source)])
    assert (len(needless), len(demanded)) == ((0, 1) if is_demanded else (1, 0))


def test_the_command_prints_figures_and_names_and_writes_json(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = checkout / "build" / "house.json"
    assert main([str(checkout), "--json", str(written), "--names", "above"]) == 0
    out = capsys.readouterr().out
    table, _, names = out.partition("\n\n")
    assert names == "above 400 lines:\n  p.long\n"
    assert len({len(line) for line in table.splitlines() if line[-1].isdecimal()}) == 1, "aligned"
    assert len(table.splitlines()) == len(json.loads(written.read_text())) == 17
    assert json.loads(written.read_text())[3] == {
        "name": "above 400 lines",
        "value": 1,
        "unit": "",
        "names": ["p.long"],
    }


def test_the_files_of_a_micro_batch_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    found = micro_batch()
    assert {"source/datasource.py", "stream/page.py"} <= set(found)
    assert not [file for file in found if file.startswith(("local/", "lease/", "worker/"))]
    assert sys.getprofile() is None


def test_a_public_name_is_told_with_all_that_a_caller_can_name() -> None:
    page = ModuleType("page")
    exec(
        "class Door:\n    width = 1\n    def open(self, *, by, slowly=True): ...\n"
        "    def _close(self): ...\n_private = 1",
        vars(page),
    )
    page.__dict__["Door"].__module__ = "page"
    assert sorted({*names_of_page(page)}) == [
        "page.Door",
        "page.Door.open",
        "page.Door.open(by)",
        "page.Door.open(slowly=True)",
        "page.Door.width",
    ]


def test_the_public_names_of_a_checkout_are_those_of_its_own_package() -> None:
    assert {
        "metric sparkinesis_lag_seconds",
        "option startingPosition",
        "sparkinesis tail --from",
        "sparkinesis.Application.worker",
        "sparkinesis.errors.DataLossError",
    } <= {*read(ROOT)}
