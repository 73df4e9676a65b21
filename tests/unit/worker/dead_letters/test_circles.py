"""An application that would read its own dead letters for ever is refused; others are not."""

from __future__ import annotations

import re
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
from sparkinesis.errors import OptionError
from sparkinesis.sinks import DeadLetterDirectory, DeadLetterStream
from sparkinesis.worker.on_error import OnError

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/"
OTHER_ARN = "arn:aws:kinesis:eu-west-1:210987654321:stream/"
ROLE = CredentialSource(role_arn="arn:aws:iam::210987654321:role/partner")
STORED = DeadLetter(DeadLetterDirectory("/tmp/d"))


class Processor(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


def to(stream: str, region: str | None = "eu-west-1", **given: Any) -> DeadLetter:
    return DeadLetter(DeadLetterStream(stream, region, **given))


def app(on_error: OnError, **given: Any) -> Application:
    arguments = {"processor": Processor, "region": "eu-west-1", **given}
    return Application("app", on_error=on_error, **arguments)


@pytest.fixture(autouse=True)
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def test_the_only_stream_is_not_its_own_dead_letter_stream() -> None:
    with pytest.raises(OptionError) as caught:
        app(to("orders"), stream="orders")
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
        app(on_error, **given)


def test_a_circle_of_two_streams_is_named() -> None:
    streams = [StreamConfig("a", on_error=to("b")), StreamConfig("b", on_error=to("a")), "c"]
    with pytest.raises(OptionError, match=re.escape("go from 'a' to 'b' to 'a' for ever")):
        app(Retry(), streams=streams)
    # The way into the circle is no part of it.
    streams = ["c", StreamConfig("d", on_error=to("c")), StreamConfig("c2", on_error=to("d"))]
    with pytest.raises(OptionError, match=re.escape("go from 'c' to 'c' for ever")):
        app(to("c"), streams=streams)


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
    assert app(on_error, **given).on_error == on_error


def test_a_region_that_is_not_given_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(OptionError, match="puts dead letters into"):
        app(to("orders"), stream="orders", region=None)
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    app(to("orders"), stream="orders", region=None)


def test_streams_that_a_function_returns_are_checked_each_time() -> None:
    wanted = ["orders"]
    made = app(to("failed"), streams=lambda: list(wanted))
    assert [plan.name for plan in made.plans()] == ["orders"]
    wanted.append("failed")
    with pytest.raises(OptionError, match="from 'failed' to 'failed' for ever"):
        made.plans()
