"""Processors that are given by name: the module is imported, and mistakes are named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sparkinesis import Application, RecordProcessor, StreamConfig
from sparkinesis.errors import ProcessorError
from sparkinesis.worker.processors.named import processor_named

NAME = "processors_of_a_test"


class Outer:
    class Inner(RecordProcessor):
        def process_records(self, batch: Any, checkpointer: Any) -> None:
            pass


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module that can be imported by `NAME`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return tmp_path / f"{NAME}.py"


def app(processor: Any, **given: Any) -> Application:
    return Application("app", "web", processor, region="eu-west-1", **given)


def test_what_is_named_is_found_and_anything_else_is_left_as_it_is() -> None:
    assert processor_named(f"{__name__}:Outer.Inner") is Outer.Inner
    assert processor_named(Outer.Inner) is Outer.Inner
    assert processor_named(None) is None


def test_an_application_keeps_the_name_and_its_streams_get_what_it_stands_for() -> None:
    named = app(f"{__name__}:Outer.Inner")
    assert named.processor == f"{__name__}:Outer.Inner", "which can be pickled"
    assert named.plans()[0].factory is Outer.Inner
    several = Application(
        "app", streams=[StreamConfig("web", f"{__name__}:Outer.Inner")], region="eu-west-1"
    )
    assert several.plans()[0].factory is Outer.Inner


def test_a_function_by_name_processes_batches(module: Path) -> None:
    module.write_text("def handle(batch):\n    pass\n")
    function = app(f"{NAME}:handle").plans()[0].function
    assert function is not None
    assert function.function is sys.modules[NAME].handle


@pytest.mark.parametrize(
    ("named", "source", "match"),
    [
        ("no_such_module:handle", "", "cannot be imported: ModuleNotFoundError.*no_such_module"),
        (f"{NAME}:handel", "def handle(batch): pass", f"no handel. Did you mean {NAME}:handle?"),
        (f"{NAME}:other", "def handle(batch): pass", r"has no other\.$"),
        (f"{NAME}:handle", "1 / 0", f"module {NAME} cannot be imported: ZeroDivisionError"),
        (f"{NAME}:handle", "import os\nos.nothing", "cannot be imported: AttributeError"),
        (f"{NAME}:handle", "handle = 5", f"is '{NAME}:handle'. The processor is 5, which cannot"),
        (f"{NAME}:handle", "def handle(a, b, c): pass", f"{NAME}:handle'. .*takes 3 arguments"),
        (f"{NAME}", "", "a processor by name is 'package.module:name'"),
        (f"{NAME}:", "", "a processor by name is 'package.module:name'"),
        ("", "", "a processor by name is 'package.module:name'"),
        (f"{NAME}:handle()", "", "a processor by name is 'package.module:name'"),
    ],
)
def test_a_name_of_no_processor_is_refused_at_once(
    module: Path, named: str, source: str, match: str
) -> None:
    module.write_text(source)
    with pytest.raises(ProcessorError, match=match):
        app(named)
