"""The processors that are accepted, the copies that shards get, and the methods called."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sparkinesis.cli.running.kclpy import find_program
from sparkinesis.compat.kclpy import kcl, messages
from sparkinesis.compat.kclpy.kcl import ExitRequestedError, find_properties, make_factory
from sparkinesis.compat.kclpy.v2 import processor as v2
from sparkinesis.compat.kclpy.v3 import processor as v3
from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests.unit.worker.delivering import Held, at

Log = list[tuple[Any, ...]]
NO_CHECKPOINTER: Any = None
"""A placeholder: these tests make no checkpoint."""


class Shared:
    """A resource that copies of a processor share, such as a file."""

    def __init__(self) -> None:
        self.log: Log = []

    def __deepcopy__(self, _: object) -> Shared:
        return self


class Logging:
    """What the processors of all versions share; each call is logged by its name."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.seen: list[bytes] = []

    def log(self, *entry: Any) -> None:
        self.shared.log.append(entry)

    def shutdown_requested(self, _: Any) -> None:
        self.log("shutdown_requested")


class Third(Logging, v3.RecordProcessorBase):
    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        self.log("initialize", initialize_input.shard_id)

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        self.seen += [record.binary_data for record in process_records_input.records]
        self.log("process_records", *self.seen)

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        self.log("lease_lost")

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        self.log("shard_ended")


class Second(Logging, v2.RecordProcessorBase):
    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        self.log("initialize", initialize_input.shard_id)

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        data = [record.binary_data for record in process_records_input.records]
        self.log("process_records", *data)

    def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
        self.log("shutdown", shutdown_input.reason)


class First(Logging, kcl.RecordProcessorBase):
    def initialize(self, shard_id: str) -> None:
        self.log("initialize", shard_id)

    def process_records(self, records: Any, checkpointer: Any) -> None:
        self.log("process_records", *(record["data"] for record in records))

    def shutdown(self, checkpointer: Any, reason: str) -> None:
        self.log("shutdown", reason)


def shard(number: int = 0, request_shutdown: Callable[[], None] = lambda: None) -> ProcessorShard:
    start = ExtendedSequenceNumber(TRIM_HORIZON)
    return ProcessorShard(
        f"shard-{number}", "app", "s", "w", start, request_shutdown=request_shutdown
    )


def deliver(processor: RecordProcessor, *data: bytes) -> None:
    records = [
        Record(data=each, partition_key="key", sequence_number=str(n))
        for n, each in enumerate(data)
    ]
    batch, _ = make_batch(records, stream="s", shard_id="shard", millis_behind_latest=0)
    processor.process_records(batch, NO_CHECKPOINTER)


@pytest.mark.parametrize(
    ("made", "data", "ended", "lost"),
    [
        (First, "YQ==", ("shutdown", "TERMINATE"), ("shutdown", "ZOMBIE")),
        (Second, b"a", ("shutdown", "TERMINATE"), ("shutdown", "ZOMBIE")),
        (Third, b"a", ("shard_ended",), ("lease_lost",)),
    ],
)
def test_the_calls_of_each_version(
    made: Callable[[Shared], object], data: object, ended: tuple[str], lost: tuple[str]
) -> None:
    shared = Shared()
    processor = make_factory(made(shared))()
    processor.initialize(shard())
    deliver(processor, b"a")
    processor.shutdown_requested(NO_CHECKPOINTER)
    processor.lease_lost()
    processor.shard_ended(NO_CHECKPOINTER)
    assert shared.log == [
        ("initialize", "shard-0"),
        ("process_records", data),
        ("shutdown_requested",),
        lost,
        ended,
    ]


def test_each_shard_gets_a_copy_as_it_was_handed_over() -> None:
    shared = Shared()
    given = Third(shared)
    factory = make_factory(given)
    given.seen.append(b"later")
    one = factory()
    deliver(one, b"a")
    deliver(factory(), b"b")
    deliver(one, b"c")
    assert shared.log == [
        ("process_records", b"a"),
        ("process_records", b"b"),
        ("process_records", b"a", b"c"),
    ]


def test_a_class_and_a_function_make_processors() -> None:
    shared = Shared()

    class Fourth(Third):
        def __init__(self) -> None:
            super().__init__(shared)
            self.lock = threading.Lock()

    def fourth() -> Fourth:
        return Fourth()

    for given in (Fourth, fourth):
        deliver(make_factory(given)(), b"a")
    assert shared.log == [("process_records", b"a")] * 2
    with pytest.raises(ProcessorError, match=r"Fourth cannot be copied .*KCLProcess\(Fourth\)"):
        kcl.KCLProcess(Fourth())


def test_a_processor_of_another_version_is_told_so() -> None:
    class Mixed(v2.RecordProcessorBase):
        def initialize(self, initialize_input: messages.InitializeInput) -> None: ...
        def process_records(self, records: messages.ProcessRecordsInput) -> None: ...
        def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None: ...
        def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None: ...

    with pytest.raises(ProcessorError, match=r"lacks shutdown, which .* methods of version 3"):
        kcl.KCLProcess(Mixed())  # type: ignore[abstract]


def test_what_is_no_processor_is_refused_at_once() -> None:
    class Unfinished(v3.RecordProcessorBase):
        def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None: ...

    class Stranger:
        def process_records(self) -> None: ...

    with pytest.raises(ProcessorError, match=r"Unfinished lacks process_records, which"):
        kcl.KCLProcess(Unfinished())  # type: ignore[abstract]
    with pytest.raises(ProcessorError, match="Stranger is not a record processor"):
        kcl.KCLProcess(Stranger())
    with pytest.raises(ProcessorError, match="7 is not a record processor"):
        kcl.KCLProcess(7)
    with pytest.raises(OptionError, match="on_error"):
        kcl.KCLProcess(Second(Shared()), on_error="skip")  # type: ignore[arg-type]


COMMON = ("initialize", "process_records", "shutdown_requested")
METHODS: dict[Any, tuple[str, ...]] = {
    First: (*COMMON, "shutdown"),
    Second: (*COMMON, "shutdown"),
    Third: (*COMMON, "lease_lost", "shard_ended"),
}
EACH_METHOD = [(base, name) for base, names in METHODS.items() for name in names]


async def later(*_: Any) -> None: ...


@pytest.mark.parametrize(("base", "name"), EACH_METHOD)
def test_a_method_that_defers_its_work_is_refused_at_once(base: Any, name: str) -> None:
    made = type("Deferring", (base,), {name: later})
    instance = base(Shared())
    setattr(instance, name, later)
    for given in (made, made(Shared()), functools.partial(made, Shared()), instance):
        with pytest.raises(ProcessorError, match=rf"{name} of .* is `async def`"):
            kcl.KCLProcess(given)
    with pytest.raises(ProcessorError, match=rf"{name} of .* is `async def`"):
        make_factory(lambda: made(Shared()))()


@pytest.mark.parametrize(("base", "name"), EACH_METHOD)
def test_a_call_that_returns_a_coroutine_is_an_error(base: Any, name: str) -> None:
    """The error is the same for every version, with an adapter or without."""
    made = type("Forgetful", (base,), {name: lambda *_: later()})
    processor = make_factory(made(Shared()))()
    calls: dict[str, list[Callable[[], object]]] = {
        "initialize": [lambda: processor.initialize(shard())],
        "process_records": [lambda: deliver(processor, b"a")],
        "shutdown": [processor.lease_lost, lambda: processor.shard_ended(NO_CHECKPOINTER)],
        "lease_lost": [processor.lease_lost],
        "shard_ended": [lambda: processor.shard_ended(NO_CHECKPOINTER)],
        "shutdown_requested": [lambda: processor.shutdown_requested(NO_CHECKPOINTER)],
    }
    for make_call in calls[name]:
        with pytest.raises(ProcessorError, match="returned a coroutine"):
            make_call()


def test_what_needs_arguments_cannot_make_processors() -> None:
    class Needs(Third):
        def __init__(self, shared: Shared) -> None:
            super().__init__(shared)

    with pytest.raises(ProcessorError, match=r"Give functools\.partial\(Needs, \.\.\.\)"):
        kcl.KCLProcess(Needs)
    with pytest.raises(ProcessorError, match="process_records"):
        kcl.KCLProcess(lambda records, checkpointer: None)


def test_a_processor_that_exits_ends_the_worker_and_is_called_no_more() -> None:
    calls = []
    exits: list[SystemExit] = []

    class Exits(Third):
        def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
            calls.append("process")
            raise SystemExit(3)

    shared = Shared()
    processor = make_factory(Exits(shared), exits.append)()
    processor.initialize(shard(5, lambda: calls.append("shutdown asked for")))
    for _ in range(2):
        # An error, so that the batch does not count as processed.
        with pytest.raises(ExitRequestedError, match=r"shard-5 called sys\.exit\(\)"):
            deliver(processor, b"a")
    processor.shutdown_requested(NO_CHECKPOINTER)
    processor.lease_lost()
    assert calls == ["process", "shutdown asked for"]
    assert [leave.code for leave in exits] == [3]
    assert shared.log == [("initialize", "shard-5")]


@pytest.fixture
def held() -> Held:
    return Held("10:1")


@pytest.fixture
def inner(held: Held) -> Checkpointer:
    """A checkpointer of a shard with records up to 20:3 delivered."""
    inner = Checkpointer(cast(HeldLease, held), lambda: 0)
    inner.permit(at("20:3"))
    return inner


def test_the_forms_of_a_checkpoint(held: Held, inner: Checkpointer) -> None:
    forms: list[tuple[Any, ...]] = [("11",), ("12", 2), (13, 1), ()]
    for form in forms:
        kcl.Checkpointer(inner).checkpoint(*form)
    inner.end()
    kcl.Checkpointer(inner).checkpoint(None, 7)
    assert held.written == ["11:0", "12:2", "13:1", "20:3", "SHARD_END"]


@pytest.mark.parametrize(
    "place", [("21",), ("20", 4), ("10", 0), ("None",), ("15", -1), ("15", "1"), ("LATEST",)]
)
def test_places_that_may_not_be_checkpointed(
    held: Held, inner: Checkpointer, place: tuple[Any, ...]
) -> None:
    with pytest.raises(kcl.CheckpointError, match="'IllegalArgumentException': ") as raised:
        kcl.Checkpointer(inner).checkpoint(*place)
    assert raised.value.value == "IllegalArgumentException"
    assert held.written == []


def test_where_the_properties_file_is_named() -> None:
    arguments = ["--verbose", "b.properties", "c.properties"]
    environment = {"SPARKINESIS_KCLPY_PROPERTIES": "d"}
    assert find_properties("a", arguments, environment) == Path("a")
    assert find_properties(None, arguments, environment) == Path("b.properties")
    assert find_properties(None, ["x"], environment) == Path("d")
    with pytest.raises(OptionError, match="No properties file is given"):
        find_properties(None, ["x"], {})


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("app.py", []),
        ("python3 app.py --fast", ["--fast"]),
        ("/usr/bin/env python3.12 -u app.py a b", ["a", "b"]),
    ],
)
def test_the_program_of_a_properties_file(
    command: str, arguments: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "app.py"
    program.write_text("")
    assert find_program(command, tmp_path / "x.properties") == (program, arguments)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("none.py", "there is no file none.py"),
        ("python", "which names no program"),
        ("start.sh", "which is not a Python program"),
    ],
)
def test_programs_that_cannot_be_run(command: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text("#!/bin/sh\n")
    with pytest.raises(OptionError, match=message):
        find_program(command, tmp_path / "x.properties")
    (tmp_path / "start.sh").write_text("#!/usr/bin/env python3\n")
    assert find_program("start.sh", tmp_path / "x.properties")[0].name == "start.sh"
