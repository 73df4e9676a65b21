"""`kinesis.queue` runs applications that consume a queue, and tells what became of the records."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis import (
    Application,
    CredentialSource,
    ProcessorError,
    Stop,
)
from sparkinesis.queue import NewQueue, QueueApplication, QueueOptions, QueueRecord
from sparkinesis.testing import QueueRun, Sandbox
from tests.integration.worker.scene import Gate

LETTERS = ["a", "b", "c"]


def application(handler: Any, **given: Any) -> QueueApplication:
    return QueueApplication("orders", handler, **{"region": "eu-west-1", **given})


def data(run: QueueRun) -> list[bytes]:
    return [record.data for record in run.delivered]


class Handler:
    """Handles by all means, and fails for a record as often as it is told."""

    def __init__(self, **fails: int) -> None:
        self.fails = Counter({name.encode(): times for name, times in fails.items()})
        self.done: list[bytes] = []

    def handle(self, record: QueueRecord) -> None:
        if self.fails[record.data] > 0:
            self.fails[record.data] -= 1
            raise ValueError(f"bad: {record.data!r}")
        self.done.append(record.data)

    async def task(self, record: QueueRecord) -> None:
        await asyncio.sleep(0)
        self.handle(record)

    def batch(self, records: list[QueueRecord]) -> list[QueueRecord]:
        failed = []
        for record in records:
            try:
                self.handle(record)
            except ValueError:
                failed.append(record)
        return failed


WAYS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "function": (Handler.handle, {}),
    "coroutine": (Handler.task, {}),
    "threads": (Handler.handle, {"concurrency": 4}),
    "tasks": (Handler.task, {"concurrency": 4}),
    "batch": (Handler.batch, {"batch_size": 10}),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_handles_and_acknowledges(kinesis: Sandbox, way: str) -> None:
    method, given = WAYS[way]
    handler = Handler(b=1)
    began = kinesis.now
    with kinesis.queue(application(method.__get__(handler), **given)) as run:
        run.put(LETTERS)
        assert sorted(run.acknowledged) == sorted(handler.done) == [b"a", b"c"]
        assert kinesis.now == began, "only `advance` moves the time"
        kinesis.advance(10)
        assert sorted(run.acknowledged) == sorted(handler.done) == [b"a", b"b", b"c"]
        (again,) = [record for record in run.delivered if record.receive_count > 1]
        assert (again.data, again.receive_count) == (b"b", 2)
    assert run.dead_letters == []


def test_what_fails_comes_again_by_its_backoff_and_then_is_a_dead_letter(kinesis: Sandbox) -> None:
    handler = Handler(b=100)
    new = NewQueue("flights", max_receive_count=3)
    with kinesis.queue(application(handler.handle, create=new)) as run:
        run.put(LETTERS)
        kinesis.advance(4.9)
        assert data(run).count(b"b") == 1, "it waits for 5 to 10 s"
        kinesis.advance(5.1)
        assert data(run).count(b"b") == 2
        assert run.dead_letters == []
        # In one go: the third delivery, and the end of what follows it.
        kinesis.advance(3_600)
        assert data(run).count(b"b") == 3
        assert run.dead_letters == [b"b"]
        assert sorted(run.acknowledged) == [b"a", b"c"]
        assert [(one.error, one.count) for one in run.failures] == [("ValueError: bad: b'b'", 3)]
        kinesis.advance(86_400)
        assert run.dead_letters == [], "its retention has ended"


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_hand_comes_again_after_a_crash(kinesis: Sandbox, way: str) -> None:
    method, given = WAYS[way]
    handler = Handler()
    with kinesis.queue(application(method.__get__(handler), **given)) as run:
        run.put(["a"])
        run.crash_after(1)
        run.put(["b"])
        assert handler.done == [b"a", b"b"]
        assert run.acknowledged == [b"a"], "the last one is handled, and not acknowledged"
        run.put(["c"])
        assert run.acknowledged == [b"a", b"c"], "another worker receives"
        kinesis.advance(29)
        assert handler.done == [b"a", b"b", b"c"]
        kinesis.advance(1)
        assert handler.done == [b"a", b"b", b"c", b"b"]
        assert run.acknowledged == [b"a", b"c", b"b"]
        assert run.delivered[-1].receive_count == 2


def test_all_that_was_handled_before_a_crash_is_acknowledged(kinesis: Sandbox) -> None:
    """And nothing that the crashed worker had in hand is handled by it."""
    handler = Handler()
    with kinesis.queue(application(handler.handle)) as run:
        run.crash_after(5)
        run.put([str(number) for number in range(10)])
        first = handler.done[:5]
        assert set(first[:4]) <= set(run.acknowledged)
        assert first[4] not in run.acknowledged
        kinesis.advance(30)
        assert sorted(run.acknowledged) == sorted(set(handler.done))
        assert len(set(handler.done)) == 10
        assert len(handler.done) == 11, "only the last one was handled twice"


def test_a_crash_amid_a_call(kinesis: Sandbox) -> None:
    gate = Gate()
    seen: list[bytes] = []

    def handle(record: QueueRecord) -> None:
        if not gate.at_work.is_set():
            gate()
        seen.append(record.data)

    with kinesis.queue(application(handle)) as run:
        run.put(["a"], until=gate.at_work.is_set)
        run.crash()
        gate.go_on.set()
        run.wait(lambda: seen == [b"a"])
        assert run.acknowledged == [], "its call has ended without effect"
        kinesis.advance(30)
        assert (seen, run.acknowledged) == ([b"a", b"a"], [b"a"])


def test_no_call_begins_once_the_last_one_before_a_crash_has(kinesis: Sandbox) -> None:
    gate = Gate()
    handler = Handler()

    def handle(record: QueueRecord) -> None:
        if record.data == b"a" and record.receive_count == 1:
            gate()
        handler.handle(record)

    with kinesis.queue(application(handle, concurrency=2)) as run:
        run.crash_after(1)
        run.put(["a"], until=gate.at_work.is_set)
        run.put(["b"], until=lambda: len(run._journal.received) == 2)
        gate.go_on.set()
        run.wait()
        assert handler.done == [b"a"]
        kinesis.advance(30)
        assert sorted(handler.done) == [b"a", b"a", b"b"]


def test_time_passes_while_all_handlers_are_busy(kinesis: Sandbox) -> None:
    """And more records wait in hand, as handlers are quick."""
    gate = Gate()

    def handle(record: QueueRecord) -> None:
        if record.data == b"b":
            gate()

    with kinesis.queue(application(handle), timeout=5) as run:
        run.put(["a"])
        run.put(["b", "c"], until=lambda: len(run._journal.received) == 3 and gate.at_work.is_set())
        kinesis.advance(60)
        assert run.acknowledged == [b"a"]
        gate.go_on.set()
        run.wait()
        assert sorted(run.acknowledged) == [b"a", b"b", b"c"]
        assert len(run.delivered) == 3, "both were held meanwhile"


def test_a_handler_that_hangs_loses_its_record_after_the_time_limit(kinesis: Sandbox) -> None:
    gate = Gate()
    held: list[bool] = []

    def handle(record: QueueRecord) -> None:
        if record.receive_count == 1:
            gate()
        held.append(record.is_held)

    options = QueueOptions(time_limit=100)
    with kinesis.queue(application(handle, concurrency=2, options=options)) as run:
        run.put(["a"], until=gate.at_work.is_set)
        kinesis.advance(99)
        assert len(run.delivered) == 1
        kinesis.advance(61)
        assert (held, run.acknowledged) == ([True], [b"a"])
        gate.go_on.set()
        run.wait(lambda: held == [True, False])
        assert run.acknowledged == [b"a"]


def test_each_record_is_delivered_twice_on_demand(kinesis: Sandbox) -> None:
    total, done = Counter[str](), set[str]()

    def once(record: QueueRecord) -> None:
        if record.record_id not in done:
            done.add(record.record_id)
            total["once"] += 1
        total["each time"] += 1

    with kinesis.queue(application(once), twice=True) as run:
        run.put(LETTERS)
        run.put(["d"])
        assert total == {"once": 4, "each time": 8}
        assert sorted(run.acknowledged) == [b"a", b"b", b"c", b"d"]
    assert Counter(data(run)) == dict.fromkeys([b"a", b"b", b"c", b"d"], 2)


def test_a_second_delivery_makes_no_dead_letter(kinesis: Sandbox) -> None:
    handler = Handler(b=1)
    new = NewQueue("flights", max_receive_count=2)
    with kinesis.queue(application(handler.handle, create=new), twice=True) as run:
        run.put(["a", "b"])
        kinesis.advance(10)
        assert (sorted(run.acknowledged), run.dead_letters) == ([b"a", b"b"], [])
        assert sorted(handler.done) == [b"a", b"a", b"b"]


def test_an_error_that_ends_the_application_ends_the_test(kinesis: Sandbox) -> None:
    handler = Handler(b=1)
    with (
        pytest.raises(ValueError, match="bad: b'b'"),
        kinesis.queue(application(handler.handle, on_error=Stop())) as run,
    ):
        run.put(LETTERS)

    def lazily(record: QueueRecord) -> Any:
        return asyncio.sleep(0)

    with (
        pytest.raises(ProcessorError, match="coroutine"),
        kinesis.queue(application(lazily)) as run,
    ):
        run.put(LETTERS)


def test_what_does_not_come_to_rest_fails_the_test(kinesis: Sandbox) -> None:
    gate = Gate()
    with (
        pytest.raises(AssertionError, match=r"Not within 0\.3 s: handlers have 1 records"),
        kinesis.queue(application(lambda _: gate()), timeout=0.3) as run,
    ):
        run.put(["a"])
    gate.go_on.set()


def test_the_place_and_the_exporters_of_production_are_left_out(kinesis: Sandbox) -> None:
    class Exporter:
        def open(self, *_: object) -> None:
            raise AssertionError("no exporter is opened in a test")

    app = QueueApplication(
        "arn:aws:kinesis:eu-west-1:999999999999:queue/abc123",
        (handler := Handler()).handle,
        options=QueueOptions(metrics=(Exporter(),), http="127.0.0.1:1"),  # type: ignore[arg-type]
        credentials=CredentialSource(role_arn="arn:aws:iam::999999999999:role/reader"),
    )
    with kinesis.queue(app) as run:
        run.put(LETTERS)
    assert handler.done == [b"a", b"b", b"c"]


def test_a_later_run_goes_on_with_the_queue(kinesis: Sandbox) -> None:
    arn = "arn:aws:kinesis:eu-west-1:999999999999:stream/flights"
    new = NewQueue(arn, "2030-01-01T00:00:00Z", stream_endpoint="https://vpce.example.com")
    kinesis.create_stream("flights", "on-demand")
    kinesis.put(["a"], "flights")
    with kinesis.queue(application(Handler().handle, create=new)) as run:
        run.wait()
        assert data(run) == [b"a"], "those that were put before, too"
    kinesis.put(["b"], "flights")
    with kinesis.queue(application(Handler().handle, create=new)) as run:
        run.wait()
        assert data(run) == [b"b"]


def test_both_doors_on_one_stream(kinesis: Sandbox) -> None:
    seen: list[bytes] = []
    leases = Application("app", "flights", lambda batch: seen.extend(r.data for r in batch))
    new = NewQueue("flights")
    with (
        kinesis.queue(application(Handler(b=1).handle, create=new)) as queue,
        kinesis.run(leases) as run,
    ):
        run.put(LETTERS)
        queue.wait()
        kinesis.advance(10)
        assert sorted(seen) == sorted(queue.acknowledged) == [b"a", b"b", b"c"]


def test_no_thread_of_a_run_is_left(kinesis: Sandbox) -> None:
    before = set(threading.enumerate())
    with kinesis.queue(application(Handler().handle)) as run:
        run.put(LETTERS)
        run.crash()
    for thread in set(threading.enumerate()) - before:
        # A thread that has called the handler waits for another call for some seconds.
        if thread.name.startswith("orders") and thread.name != "orders-record":
            thread.join(5)
            assert not thread.is_alive(), thread
