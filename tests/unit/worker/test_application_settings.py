"""Processors that are given by name, and dead letters that would come back."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkinesis import (
    Application,
    CredentialSource,
    DeadLetter,
    RecordProcessor,
    Retry,
    Skip,
    StreamConfig,
)
from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.sinks import DeadLetterDirectory, DeadLetterStream
from sparkinesis.worker.application_settings import processor_named
from sparkinesis.worker.on_error import OnError

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


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/"
OTHER_ARN = "arn:aws:kinesis:eu-west-1:210987654321:stream/"
ROLE = CredentialSource(role_arn="arn:aws:iam::210987654321:role/partner")
STORED = DeadLetter(DeadLetterDirectory("/tmp/d"))


class Processor(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


def to(stream: str, region: str | None = "eu-west-1", **given: Any) -> DeadLetter:
    return DeadLetter(DeadLetterStream(stream, region, **given))


def on_streams(on_error: OnError, **given: Any) -> Application:
    arguments = {"processor": Processor, "region": "eu-west-1", **given}
    return Application("app", on_error=on_error, **arguments)


@pytest.fixture(autouse=True)
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def test_the_only_stream_is_not_its_own_dead_letter_stream() -> None:
    with pytest.raises(OptionError) as caught:
        on_streams(to("orders"), stream="orders")
    assert str(caught.value) == (
        "The application reads the stream that it puts dead letters into: a record that fails "
        "again would go from 'orders' to 'orders' for ever. Take the dead-letter stream out of the "
        "streams to read, or give its StreamConfig another on_error."
    )


@pytest.mark.parametrize(
    ("on_error", "given"),
    [
        (Retry(3, then=to("orders")), {"stream": "orders"}),
        (to("orders"), {"stream": f"{ARN}orders", "region": None}),
        (to(f"{ARN}orders", None), {"stream": "orders"}),
        (to(f"{ARN}orders", None), {"stream": f"{ARN}orders"}),
        (to("failed"), {"streams": ["orders", "failed"]}),
        (to("failed"), {"streams": ["orders", StreamConfig("failed", on_error=to("failed"))]}),
        (to("failed", credentials=ROLE), {"streams": ["orders", "failed"], "credentials": ROLE}),
    ],
    ids=["retry", "arn-read", "arn-written", "arns", "several", "config", "one-role"],
)
def test_a_dead_letter_that_comes_back_is_refused(on_error: OnError, given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="puts dead letters into"):
        on_streams(on_error, **given)


def test_a_circle_of_two_streams_is_named() -> None:
    streams = [StreamConfig("a", on_error=to("b")), StreamConfig("b", on_error=to("a")), "c"]
    with pytest.raises(OptionError, match=re.escape("go from 'a' to 'b' to 'a' for ever")):
        on_streams(Retry(), streams=streams)
    # The way into the circle is no part of it.
    streams = ["c", StreamConfig("d", on_error=to("c")), StreamConfig("c2", on_error=to("d"))]
    with pytest.raises(OptionError, match=re.escape("go from 'c' to 'c' for ever")):
        on_streams(to("c"), streams=streams)


@pytest.mark.parametrize(
    ("on_error", "given"),
    [
        (to("failed"), {"stream": "orders"}),
        (to("orders", "eu-west-2"), {"stream": "orders"}),
        (to("orders", endpoint="http://127.0.0.1:1"), {"stream": "orders"}),
        (to("orders", credentials=ROLE), {"stream": "orders"}),
        (to(f"{OTHER_ARN}orders", None), {"stream": f"{ARN}orders"}),
        (to("failed"), {"streams": ["orders", StreamConfig("failed", on_error=Skip())]}),
        (to("failed"), {"streams": ["orders", StreamConfig("failed", on_error=STORED)]}),
        (DeadLetter(lambda failed: None), {"stream": "orders"}),
    ],
    ids=[
        "another", "region", "endpoint", "role", "account", "tried-again", "stored", "function",
    ],
)  # fmt: skip
def test_a_dead_letter_that_ends_elsewhere_is_taken(
    on_error: OnError, given: dict[str, Any]
) -> None:
    assert on_streams(on_error, **given).on_error == on_error


def test_a_region_that_is_not_given_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(OptionError, match="puts dead letters into"):
        on_streams(to("orders"), stream="orders", region=None)
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    on_streams(to("orders"), stream="orders", region=None)


def test_streams_that_a_function_returns_are_checked_each_time() -> None:
    wanted = ["orders"]
    made = on_streams(to("failed"), streams=lambda: list(wanted))
    assert [plan.name for plan in made.plans()] == ["orders"]
    wanted.append("failed")
    with pytest.raises(OptionError, match="from 'failed' to 'failed' for ever"):
        made.plans()
