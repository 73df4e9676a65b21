"""Each promise and option of the docs has a stable name, by which its tests are found."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkinesis import FanOutOptions, FleetOptions, StreamConfig, WorkerOptions
from sparkinesis.metrics import CloudWatchMetrics
from sparkinesis.source.options.option_table import OPTIONS
from tests import conftest
from tests.documents import PAGES, ROOT, Table, tables, without_blocks
from tests.promises import FOLDER, PROMISES

PROMISE = re.compile(r"--promise ([\w.]+)")
TABLES = [table for page in PAGES for table in tables(page) if PROMISE.search(table.below)]
"""The tables of options, calls and policies: the sentence below tells how to run their tests."""

SPARKS_OWN = {"checkpointLocation", "path", "queryName"}


def names(table: Table) -> list[list[str]]:
    """The names of each row, with the class that the sentence below the table names."""
    (example,) = PROMISE.findall(table.below)
    prefix = example[: example.rfind(".") + 1]
    column = next((n for n, cell in enumerate(table.head) if cell.startswith("here")), 0)
    return [
        [name for code in re.findall(r"`(.*?)`", row[column]) for name in named(code, prefix)]
        for row in table.rows
    ]


def named(code: str, prefix: str) -> list[str]:
    """The names of an option or setting, or of a call and of the arguments that have a name."""
    call = re.match(r"([\w.]+)\((.*)\)$", code)
    if call:
        arguments = re.findall(r"(\w+)=", call[2])
        return [call[1], *(f"{call[1]}.{argument}" for argument in arguments)]
    return [f"{prefix}{found[0]}"] if (found := re.match(r"\w+", code)) else []


def bullets() -> list[str]:
    page = without_blocks(ROOT / "docs" / "guarantees.md")
    return re.findall(r"^- .+\n(?: .+\n)*", page, re.MULTILINE)


def properties() -> list[str]:
    (table,) = [one for one in tables(ROOT / "docs" / "properties.md") if one.head[0] == "name"]
    return [row[0] for row in table.rows]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_each_row_of_an_option_table_has_tests(table: Table) -> None:
    for row in names(table):
        assert row
        assert set(row) <= PROMISES.keys()


def test_each_promise_has_tests() -> None:
    assert len(bullets()) == 14
    for bullet in bullets():
        assert set(re.findall(r"\(([A-Z]\d+)\)", bullet)) & PROMISES.keys(), bullet
    assert len(properties()) == len(set(properties()))
    assert set(properties()) <= PROMISES.keys()


def test_the_docs_name_everything_that_has_tests() -> None:
    rows = [name for table in TABLES for row in names(table) for name in row]
    assert PROMISES.keys() == {*rows, *properties()}


def test_each_option_has_tests() -> None:
    every = set(OPTIONS) - SPARKS_OWN
    for kind in (WorkerOptions, FanOutOptions, FleetOptions, StreamConfig, CloudWatchMetrics):
        every |= {f"{kind.__name__}.{each.name}" for each in fields(kind)}
    assert every <= PROMISES.keys()


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((FOLDER / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def exists(test: str) -> bool:
    path, _, function = test.partition("::")
    if (FOLDER / path).is_dir():
        return any((FOLDER / path).rglob("test_*.py"))
    if not (FOLDER / path).is_file() or not Path(path).name.startswith("test_"):
        return False
    return not function or (function.startswith("test_") and function in functions(path))


def test_the_tests_exist() -> None:
    missing = {(name, test) for name in PROMISES for test in PROMISES[name] if not exists(test)}
    assert missing == set()


def configured(name: str) -> Any:
    """A run of pytest that was asked for a promise."""
    config = SimpleNamespace(args=["tests"], option=SimpleNamespace(markexpr="not long"))
    conftest.select_promise(config, name)  # type: ignore[arg-type]
    return config


def test_a_run_of_a_promise_has_its_tests_alone_and_the_long_ones_too() -> None:
    config = configured("maxrecordspertrigger")
    assert config.args == [f"{FOLDER}/{test}" for test in PROMISES["maxRecordsPerTrigger"]]
    assert config.option.markexpr == ""


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("P11", "P1"),
        ("maxRecordPerTrigger", "maxRecordsPerTrigger"),
        ("?", "maxRecordsPerTrigger"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_most_similar_ones(name: str, similar: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"no promise '{re.escape(name)}'") as caught:
        configured(name)
    assert similar in str(caught.value).rpartition(": ")[2].rstrip(".").split(", ")
