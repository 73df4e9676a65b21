"""Wrong uses of an application of a queue are refused before anything is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.queue.application import QueueApplication, SupervisedQueue
from sparkinesis.queue.options import QueueOptions
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


def test_no_text_shows_a_secret_of_the_endpoint() -> None:
    with pytest.raises(OptionError, match="may not hold credentials"):
        QueueApplication(ARN, handle, endpoint="http://user:secret@localhost:1")
