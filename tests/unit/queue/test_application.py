"""Wrong uses of an application of a queue are refused before anything is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.queue.application import QueueApplication, SupervisedQueue
from sparkinesis.queue.client import Received
from sparkinesis.queue.finding import NewQueue
from sparkinesis.queue.options import _OF_LEASES, QueueOptions
from sparkinesis.queue.record import QueueRecord
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor

ARN = "arn:aws:kinesis:eu-west-1:123456789012:queue/abc123"


def handle(record: object) -> None: ...


def handle_with_checkpointer(batch: object, checkpointer: object) -> None: ...


def handle_lazily(record: object) -> Iterator[object]:
    yield record


class Processor(RecordProcessor): ...


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (Processor, "a queue has no shards"),
        ("module:function", "must be a function that takes a record"),
        (handle_with_checkpointer, "There is no checkpointer: a return acknowledges."),
        (handle_lazily, "has a `yield`"),
    ],
)
def test_a_handler_of_the_other_door(handler: Any, said: str) -> None:
    with pytest.raises(ProcessorError) as raised:
        QueueApplication(ARN, handler)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"options": WorkerOptions()}, "WorkerOptions are those of an application with leases."),
        ({"concurrency": 0}, "concurrency is 0; it must be a whole number from 1 to 1,000."),
        ({"batch_size": 11}, "batch_size is 11; it must be a whole number from 1 to 10."),
        ({"decode": "json"}, "must be a function of the bytes"),
        ({"create": {"stream": "s"}}, "create must be NewQueue(...)."),
        ({"on_error": "retry"}, "on_error is 'retry'"),
        ({"region": "us-east-1"}, "us-east-1"),
    ],
)
def test_an_option_that_cannot_be_used(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        QueueApplication(ARN, handle, **given)
    assert said in str(raised.value)


def test_what_a_supervisor_has_to_know() -> None:
    """A shutdown takes as long as docs/queues.md says: the receive, the handlers, the flush."""
    options = QueueOptions(wait_time=3, shutdown_timeout=43_200, http=":0")
    given = SupervisedQueue.of(QueueApplication("orders", handle, "us-east-1", options=options))
    assert (given.shutdown_within, given.closes_within) == (43_203, 10)
    assert (given.name, given.reads, given.place.region) == ("orders", "queue orders", "us-east-1")
    assert (given.http, given.worker_id, given.has_shards) == (":0", None, False)


WORDS = [
    (
        QueueApplication,
        "initial_position",
        "NewQueue(stream, starting_position=...) says it, once for all.",
    ),
    (QueueApplication, "processor", "handler is the function that takes a record."),
    (QueueOptions, "checkpoint_seconds", "a handler that returns has acknowledged its record."),
    (QueueOptions, "skip_older_than", "by record.approximate_arrival_timestamp."),
]


@pytest.mark.parametrize(("kind", "word", "said"), WORDS)
def test_a_word_of_the_other_door_is_told_with_what_serves(kind: Any, word: str, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        kind(**{word: 1})
    told = str(raised.value)
    assert told.startswith(f"{word} is for applications with leases, and not for {kind.__name__}: ")
    assert told.endswith(said)


@pytest.mark.parametrize("processor", [handle, "package.module:handle"])
@pytest.mark.parametrize("named", [{}, {"region": "eu-west-1"}])
def test_the_arguments_of_the_other_door_by_position_are_told_with_what_serves(
    processor: Any, named: dict[str, Any]
) -> None:
    """Python's own error would say that region was given twice."""
    given: Any = ("orders-app", "shop", processor)
    with pytest.raises(OptionError) as raised:
        QueueApplication(*given, **named)
    assert str(raised.value) == (
        "QueueApplication was given 3 arguments by position, the third a processor, as "
        "applications with leases take name, stream and processor. It takes queue and handler: "
        "create=NewQueue(stream=...) makes a queue of a stream; else the queue knows its own. "
        "Give name=... for logs and metrics."
    )


def test_what_is_refused_is_an_option_of_the_other_door_and_none_of_this_one() -> None:
    of_leases = {one.name for kind in (Application, WorkerOptions) for one in fields(kind)}
    own = {one.name for kind in (QueueApplication, QueueOptions) for one in fields(kind)}
    assert _OF_LEASES.keys() <= of_leases - own


def test_any_other_word_is_pythons_error_and_the_signature_is_seen() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'queues'"):
        QueueApplication(ARN, handle, queues=1)  # type: ignore[call-arg]
    assert next(iter(inspect.signature(QueueOptions).parameters)) == "wait_time"
    assert replace(QueueOptions(), wait_time=1).wait_time == 1


NOTHING: Any = None
RECORD = QueueRecord(Received("handle", "id", b"x", receive_count=1), NOTHING, NOTHING, b"x", "k")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sequence_number", ": a queue hides it; record_id is the same in each delivery"),
        ("checkpoint", ": a handler that returns has acknowledged its record"),
        ("offset", ""),
    ],
)
def test_what_a_record_of_a_queue_has_not(name: str, said: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(RECORD, name)
    assert str(raised.value) == f"a QueueRecord has no {name}{said}"
    assert not hasattr(RECORD, name)


def test_an_arn_of_the_other_kind() -> None:
    stream = "arn:aws:kinesis:eu-west-1:123456789012:stream/shop"
    with pytest.raises(OptionError, match=r"queue is .*NewQueue\(stream=...\) makes a queue"):
        QueueApplication(stream, handle)
    with pytest.raises(OptionError, match=r"stream is .* A QueueApplication consumes a queue\.$"):
        Application("app", ARN, lambda batch: None).plans()


async def coroutine(record: object) -> None: ...


def test_a_call_of_the_handler_in_place_of_the_handler() -> None:
    with pytest.raises(ProcessorError, match=r"what a call has returned \(coroutine\)"):
        QueueApplication(ARN, coroutine("record"))  # type: ignore[arg-type]


def test_a_queue_without_a_receive_of_a_record() -> None:
    with pytest.raises(OptionError) as raised:
        QueueApplication("orders", handle, create=NewQueue("shop", max_receive_count=0))
    assert str(raised.value) == (
        "max_receive_count is 0; it must be a whole number from 1 to 1,000, or None for a queue "
        "without dead letters."
    )


def test_no_text_shows_a_secret_of_the_endpoint() -> None:
    with pytest.raises(OptionError, match="may not hold credentials"):
        QueueApplication(ARN, handle, endpoint="http://user:secret@localhost:1")
