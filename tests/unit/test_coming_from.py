"""docs/coming-from: what the pages call ours exists, and each page has the parts of all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import typer.main
from pyspark.sql import DataFrame, GroupedData, functions
from pyspark.sql.avro import functions as avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

import sparkinesis
import sparkinesis.queue
from sparkinesis import (
    Application,
    Checkpointer,
    FanOutOptions,
    LeaseTableOptions,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    UserRecord,
    Worker,
    WorkerOptions,
    errors,
    metrics,
)
from sparkinesis.cli.app import app
from sparkinesis.compat.kclpy.kcl import KCLProcess
from sparkinesis.errors import OptionError
from sparkinesis.metrics import CloudWatchMetrics
from sparkinesis.queue import NewQueue, QueueApplication, QueueOptions, QueueRecord
from sparkinesis.source.options.option_table import OPTIONS
from sparkinesis.source.options.option_table import ROW_COLUMNS as COLUMNS
from tests.documents import ROOT, blocks, links, tables, without_blocks

FOLDER = ROOT / "docs" / "coming-from"
PAGES = sorted(FOLDER.glob("*.md"))
ORIGINS = [page for page in PAGES if page.name != "index.md"]
OF_SEVERAL = "other-consumers"
"""Has a row for each library, and no program beside one of theirs."""

HEAD = ["theirs", "here", "what differs"]
SQL = ("CAST(", "CREATE TABLE ")

INSTANCES = {
    "application": Application,
    "worker": Worker,
    "shard": ProcessorShard,
    "checkpointer": Checkpointer,
    "batch": RecordBatch,
    "record": UserRecord,
    "query": StreamingQuery,
}
"""Variables of the pages, and the class of each."""
OF_QUEUES = {"sqs": {"record": QueueRecord}}
"""Those of pages that lead to queues."""

PARAMETERS = {
    field.name
    for kind in (
        *(Application, WorkerOptions, FanOutOptions, LeaseTableOptions, CloudWatchMetrics),
        *(QueueApplication, QueueOptions, NewQueue),
    )
    for field in dataclasses.fields(kind)
}
PARAMETERS |= set(inspect.signature(Application.run).parameters)
MADE: dict[object, tuple[str, ...]] = {RecordBatch: RecordBatch._begin.__code__.co_names}
"""The attributes that only instances have."""
ROW = set(COLUMNS)
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
SPARK = (DataFrame, DataStreamReader, DataStreamWriter, GroupedData, functions, avro)


def check(code: str) -> None:
    """Raise an error, of whatever kind, if a page names something of ours that does not exist."""
    if code.startswith("sparkinesis "):
        assert code.split()[1] in COMMANDS
    elif found := re.fullmatch(r"(\w+)=([^(]*)", code):
        name, value = found.groups()
        if name in OPTIONS:
            OPTIONS[name].parse(name, value)
        else:
            assert name in PARAMETERS
    elif not code.startswith(SQL) and code not in {*OPTIONS, *ROW, *PARAMETERS}:
        (statement,) = ast.parse(code).body
        assert isinstance(statement, ast.Expr | ast.Assign)
        named(statement.value)


def named(expression: ast.expr) -> object:
    """What an expression names; an instance is shown by its class. Arguments are not evaluated."""
    match expression:
        case ast.Name(name):
            return of_name(name)
        case ast.Attribute(value, name):
            return member(named(value), name)
        case ast.Call(function, arguments, keywords):
            called = named(function)
            is_method = isinstance(function, ast.Attribute) and isinstance(
                named(function.value), type
            )
            given = {str(each.arg): each.value for each in keywords}
            assert callable(called)
            inspect.signature(called).bind_partial(*[None] * is_method, *arguments, **given)
            return called
        case _:
            raise NameError(ast.unparse(expression))


def of_name(name: str) -> object:
    if name in INSTANCES:
        return INSTANCES[name]
    if name in {"sparkinesis", "KCLProcess"}:
        return {"sparkinesis": sparkinesis, "KCLProcess": KCLProcess}[name]
    if callable(getattr(RecordProcessor, name, None)):
        return functools.partial(getattr(RecordProcessor, name), None)
    for page in (sparkinesis, sparkinesis.queue, errors, metrics):
        if hasattr(page, name):
            return getattr(page, name)
    homes = [home for home in SPARK if hasattr(home, name)]
    if not homes:
        raise NameError(name)
    found = getattr(homes[0], name)
    return functools.partial(found, None) if isinstance(homes[0], type) else found


def member(owner: object, name: str) -> object:
    if isinstance(owner, ModuleType) and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    fields = set(MADE.get(owner, ()))
    if dataclasses.is_dataclass(owner):
        fields = {field.name for field in dataclasses.fields(owner)}
    elif isinstance(owner, type) and issubclass(owner, msgspec.Struct):
        fields = set(owner.__struct_fields__)
    return object() if name in fields else getattr(owner, name)


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def ours(page: Path) -> Iterator[str]:
    """The names that the tables of a page call ours; "the same" calls theirs so."""
    for table in tables(page):
        if table.head == HEAD:
            for theirs, here, _ in table.rows:
                yield from codes(theirs if here == "the same" else here)


NAMED = [
    pytest.param(page.stem, code, id=f"{page.stem}: {code}")
    for page in ORIGINS
    for code in ours(page)
]


@pytest.mark.parametrize(("page", "code"), NAMED)
def test_what_a_table_names_exists(page: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in OF_QUEUES.get(page, {}).items():
        monkeypatch.setitem(INSTANCES, name, kind)
    check(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_options_have_values_that_they_take(page: Path) -> None:
    for code in codes(without_blocks(page)):
        name, is_given, value = code.partition("=")
        if is_given and name in OPTIONS:
            OPTIONS[name].parse(name, value)
        elif is_given and re.fullmatch(r"[a-z_]+", name):
            assert name in PARAMETERS


@pytest.mark.parametrize(
    "page",
    [page for page in ORIGINS if page.stem != OF_SEVERAL],
    ids=lambda page: str(page.stem),
)
def test_each_page_has_the_parts_of_all(page: Path) -> None:
    text = without_blocks(page)
    assert re.match(r"# Coming from .+\n\nFor those who [^.]+\.", text)
    for heading in ("The smallest program", "What moves over", "What behaves otherwise"):
        assert f"\n## {heading}\n" in text
    theirs, *_ = blocks(page)
    assert theirs.language == "text"
    assert any(block.language == "python" for block in blocks(page))
    assert any(table.head == HEAD for table in tables(page))


def test_the_index_lists_every_page() -> None:
    index = FOLDER / "index.md"
    assert {page.name for page in ORIGINS} <= set(links(index))
    (toctree,) = re.findall(r"```\{toctree\}\n(.*?)```", index.read_text("utf-8"), re.DOTALL)
    listed = [line for line in toctree.split() if not line.startswith(":")]
    assert sorted(listed) == [page.stem for page in ORIGINS]


@pytest.mark.parametrize(
    "code",
    [
        "initialPositions",
        "initialPosition=yesterday",
        "failover_times",
        "retrievals=efo",
        "WorkerOptions(retrievals='efo')",
        "checkpointer.checkpoints()",
        "checkpointer.prepare(states=b'')",
        "shard.ids",
        "record.datum",
        "shard_ended(checkpointer, reason)",
        "sparkinesis resets",
        "sparkinesis.lags(query)",
        "from_jason",
        "Retries",
    ],
)
def test_a_name_that_does_not_exist_is_found(code: str) -> None:
    errors_of_names = (AssertionError, AttributeError, ImportError, NameError, TypeError)
    with pytest.raises((*errors_of_names, OptionError)):
        check(code)
