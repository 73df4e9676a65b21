"""The public names: each shows where to import it from; importing them costs a query nothing."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
import typing
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

import sparkinesis
from sparkinesis import errors, events, functions, metrics, payloads, queue, sinks, status
from tests.house.public import defined_by

MOST_NAMES = 45
"""The names of ``sparkinesis`` itself: those that a first program needs."""

ALIASES = {"OnError"}
"""Names of unions: Python gives these no module."""


PAGES = {
    sparkinesis: sorted({*sparkinesis.__all__} - ALIASES - {*defined_by(errors)}),
    errors: defined_by(errors),
    events: defined_by(events),
    functions: functions.__all__,
    metrics: metrics.__all__,
    payloads: payloads.__all__,
    queue: queue.__all__,
    sinks: sinks.__all__,
    status: defined_by(status),
}
PUBLIC = [(page.__name__, name) for page, names in PAGES.items() for name in names]
CLASSES = [
    getattr(page, name)
    for page, names in PAGES.items()
    for name in names
    if isinstance(getattr(page, name), type)
]
ERRORS = sorted(defined_by(errors))


def test_the_first_page_is_short() -> None:
    assert len(sparkinesis.__all__) <= MOST_NAMES


def test_the_other_pages_need_no_import_of_their_own() -> None:
    code = "import sparkinesis as s; print(s.events, s.metrics, s.status, s.sinks.ParquetSink)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("page", PAGES)
def test_there_is_no_other(page: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Scheduler'"):
        page.Scheduler  # noqa: B018


@pytest.mark.parametrize("page", [sparkinesis, metrics])
def test_dir_lists_all_public_names(page: ModuleType) -> None:
    shown = {name for name in dir(page) if not name.startswith("__")}
    assert shown == set(page.__all__)


def test_every_error_that_a_user_can_meet_is_in_the_tree() -> None:
    drawn = [line.strip("│├└─ ").split() for line in (errors.__doc__ or "").splitlines()]
    assert sorted(line[0] for line in drawn if line and line[0].endswith("Error")) == ERRORS


@pytest.mark.parametrize(("page", "name"), PUBLIC)
@pytest.mark.parametrize("module", [pickle, cloudpickle])
def test_a_pickle_refers_to_the_public_name(page: str, name: str, module: typing.Any) -> None:
    thing = getattr(importlib.import_module(page), name)
    stored = module.dumps(thing)
    assert pickle.loads(stored) is thing
    assert len(stored) < 120, "a reference, not the class itself"
    assert set(re.findall(rb"sparkinesis[\w.]*", stored)) == {page.encode()}, "no inner module"


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_survives_the_way_to_another_process(name: str) -> None:
    error = getattr(errors, name)("what happened")
    error.shard = "shardId-000000000001"
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is type(error)
    assert str(received) == "what happened"
    assert vars(received) == vars(error)


class Ignore(sparkinesis.RecordProcessor):
    def process_records(
        self, batch: sparkinesis.RecordBatch, checkpointer: sparkinesis.Checkpointer
    ) -> None: ...


VALUES = [
    sparkinesis.WorkerOptions(failover_time=5),
    sparkinesis.FleetOptions(port=4040),
    sparkinesis.PendingCheckpoint(sparkinesis.ExtendedSequenceNumber("12"), b"state"),
    sparkinesis.Retry(
        3, then=sparkinesis.DeadLetter(sparkinesis.sinks.DeadLetterStream("s", "eu-west-1"))
    ),
    sparkinesis.status.FleetStatus("app", "flights", sparkinesis.status.FleetState.RUNNING, 2),
    sparkinesis.Application("app", "flights", Ignore, "eu-west-1"),
    sparkinesis.Record(data=b"x", sequence_number="1"),
    sparkinesis.errors.UnfinishedResetError("stopped", ["first"], ["second"]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_survives_the_way_to_another_process(value: object) -> None:
    stored: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    code = "import pickle, sys; sys.stdout.write(repr(pickle.load(sys.stdin.buffer)))"
    received = pickle.loads(stored)
    assert repr(received) == repr(value)
    if not isinstance(value, Exception):
        assert received == value
        return
    # An error has to be readable where nothing of sparkinesis was imported before.
    answer = subprocess.run(
        [sys.executable, "-c", code], input=stored, capture_output=True, check=True
    )
    assert answer.stdout.decode() == repr(value)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_type_hints_and_help_of_a_public_class_work(cls: type) -> None:
    assert set(typing.get_type_hints(cls)) >= set(vars(cls).get("__annotations__", ()))
    assert all(not isinstance(hint, str) for hint in typing.get_type_hints(cls).values())
    assert (cls.__doc__ or "").split("\n")[0] in pydoc.render_doc(cls)


def test_the_source_of_public_methods_and_functions_can_be_shown() -> None:
    assert "def process_records" in inspect.getsource(sparkinesis.RecordProcessor.process_records)
    assert "def aggregate" in inspect.getsource(sparkinesis.aggregate)
    with pytest.raises(OSError, match=r"class definition|source code"):
        inspect.getsource(sparkinesis.RecordProcessor)


def test_a_traceback_shows_the_name_to_import() -> None:
    code = "import sparkinesis; sparkinesis.Application('', 'flights', print)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"\nsparkinesis.errors.OptionError: " in answer.stderr


def test_importing_the_package_imports_no_record_processors() -> None:
    code = (
        "import sys, sparkinesis; print([m for m in sys.modules if 'boto' in m or 'worker' in m])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout.strip() == b"[]"


def test_the_examples_import_public_names_only() -> None:
    examples = Path(__file__).parents[2] / "examples"
    imports = re.compile(r"^ *(?:from|import) (sparkinesis[\w.]*)", re.MULTILINE)
    found = {name for path in examples.rglob("*.py") for name in imports.findall(path.read_text())}
    assert found <= {"sparkinesis", "sparkinesis.local", *(page.__name__ for page in PAGES)}
