"""Functions, coroutines and loops as applications, on real workers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from sparkinesis import RecordBatch, RecordProcessor, Retry, Skip, Stop
from sparkinesis.errors import OptionError, ProcessorError, RecordDecodeError
from sparkinesis.events import EventLoopBlocked
from sparkinesis.local import Call
from sparkinesis.status import ShardState
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.batches.user_record import UserRecord
from tests.integration.worker import ways_process
from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE
from tests.pace import eventually


class Seen:
    """Records that functions have processed, from all threads."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.changed = threading.Condition()

    def add(self, *records: UserRecord) -> None:
        with self.changed:
            self.data += [record.data for record in records]
            self.changed.notify_all()

    def wait(self, *data: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(data) <= set(self.data), PATIENCE), self.data


@pytest.fixture
def seen() -> Seen:
    return Seen()


def processors(seen: Seen) -> dict[str, Callable[..., Any] | type]:
    def function(batch: RecordBatch) -> None:
        seen.add(*batch)

    async def async_function(batch: RecordBatch) -> None:
        await asyncio.sleep(0.01)
        seen.add(*batch)

    def with_checkpointer(batch: RecordBatch, checkpointer: Any) -> None:
        for record in batch:
            seen.add(record)
            checkpointer.checkpoint(record)

    class Async(RecordProcessor):
        async def initialize(self, shard: Any) -> None:
            self.shard = shard

        async def process_records(self, batch: RecordBatch, checkpointer: Any) -> None:
            assert self.shard.id == batch[0].shard_id
            seen.add(*batch)
            await checkpointer.checkpoint_async()

        async def lease_lost(self) -> None:
            await asyncio.sleep(0)

    return {
        "function": function,
        "async function": async_function,
        "with checkpointer": with_checkpointer,
        "async class": Async,
    }


@pytest.mark.parametrize("way", processors(Seen()))
def test_what_has_returned_is_checkpointed(scene: Scene, seen: Seen, way: str) -> None:
    last = [scene.put(b"%d" % n) for n in range(5)][-1]
    worker = scene.start(processor=processors(seen)[way])
    seen.wait(b"4")
    assert worker.shutdown()
    assert scene.row().checkpoint.sequence_number == last
    assert seen.data == [b"0", b"1", b"2", b"3", b"4"]


def test_a_function_that_raises_is_called_again_and_nothing_is_checkpointed(
    scene: Scene, seen: Seen
) -> None:
    scene.put(b"good")
    failures: list[str] = []

    def handle(batch: RecordBatch) -> None:
        if len(failures) < 2:
            failures.append(str(scene.row().checkpoint))
            raise ValueError("not yet")
        seen.add(*batch)

    worker = scene.start({"task_backoff": 0.01}, processor=handle)
    seen.wait(b"good")
    assert worker.shutdown()
    assert failures == ["TRIM_HORIZON", "TRIM_HORIZON"]


def test_a_coroutine_that_is_overdue_is_cancelled_and_not_checkpointed(
    scene: Scene, seen: Seen
) -> None:
    scene.put(b"first")
    ends: list[str] = []

    async def handle(batch: RecordBatch) -> None:
        seen.add(*batch)
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    worker = scene.start(processor=handle)
    seen.wait(b"first")
    assert not worker.shutdown(timeout=0.1)
    worker.wait(PATIENCE)
    eventually(lambda: ends == ["cancelled"])  # the worker waits for nobody whose time is up
    assert scene.row().checkpoint.is_sentinel


def test_a_coroutine_that_blocks_is_named_and_loses_no_lease(scene: Scene, seen: Seen) -> None:
    scene.put(b"first")
    events: list[EventLoopBlocked] = []
    is_over = threading.Event()

    def hear(event: object) -> None:
        if isinstance(event, EventLoopBlocked):
            events.append(event)
            is_over.set()

    async def handle(batch: RecordBatch) -> None:
        is_over.wait(PATIENCE)  # blocks the loop, as a mistake would
        seen.add(*batch)

    worker = scene.start({"on_event": hear}, processor=handle)
    seen.wait(b"first")
    worker.shutdown()
    (event,) = events
    assert "handle (" in event.where
    assert "test_ways.py" in event.where
    assert event.seconds >= 1


def test_run_async_runs_on_the_programs_loop_and_ends_when_cancelled(
    scene: Scene, seen: Seen
) -> None:
    last = scene.put(b"first")
    threads: list[threading.Thread] = []

    async def handle(batch: RecordBatch) -> None:
        threads.append(threading.current_thread())
        seen.add(*batch)

    async def main() -> None:
        running = asyncio.create_task(scene.application(processor=handle).run_async())
        await asyncio.to_thread(seen.wait, b"first")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # as asyncio.run() does when Ctrl-C interrupts it
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert threads == [threading.main_thread()]
    assert scene.row().checkpoint.sequence_number == last
    assert scene.row().owner is None


def test_run_async_raises_what_ended_the_worker(scene: Scene) -> None:
    scene.put(b"first")

    async def later() -> None:
        """Do nothing."""

    def handle(batch: RecordBatch) -> Any:
        return later()

    with pytest.raises(ProcessorError, match=r"handle returned a coroutine"):
        asyncio.run(scene.application(processor=handle).run_async())


# --- loops


def test_a_batch_of_a_loop_is_processed_when_the_loop_asks_again(scene: Scene) -> None:
    first, second = scene.put(b"0"), scene.put(b"1")
    application = scene.application({"checkpoint_seconds": 0.0, "max_records": 1}, processor=None)
    with application.batches() as batches:
        batch = next(batches)
        assert [record.data for record in batch] == [b"0"]
        assert scene.row().checkpoint.is_sentinel
        assert [record.data for record in next(batches)] == [b"1"]
        assert scene.row().checkpoint.sequence_number == first
    assert scene.row().checkpoint.sequence_number == first != second
    assert scene.row().owner is None


@pytest.mark.parametrize("how", ["break", "exception", "timeout", "worker"])
def test_a_loop_that_is_left_repeats_the_batch_that_it_is_at(scene: Scene, how: str) -> None:
    scene.put(b"0")
    got: list[list[bytes]] = []
    timeout = 0.5 if how == "timeout" else None

    def loop() -> None:
        with scene.application(processor=None).batches(timeout=timeout) as batches:
            for batch in batches:
                got.append([record.data for record in batch])
                if how == "break":
                    break
                if how == "exception":
                    raise LookupError("of the program")
                if how == "worker":
                    batches.worker.request_shutdown()

    if how == "exception":
        with pytest.raises(LookupError):
            loop()
    else:
        while not got:  # on a slow machine, the time may be over before the first batch comes
            loop()
    assert scene.row().checkpoint.is_sentinel
    assert scene.row().owner is None
    with scene.application(processor=None).records() as records:
        for record in records:
            got.append([record.data])
            assert records.checkpoint()
            break
    assert got == [[b"0"], [b"0"]]
    assert scene.row().checkpoint.sequence_number == record.sequence_number


def test_a_batch_that_comes_as_its_loop_is_interrupted_counts_as_not_processed(
    scene: Scene,
) -> None:
    """Ctrl-C meets the loop between the worker's offer and the batch."""
    scene.put(b"0")
    application = scene.application({"checkpoint_seconds": 0.0}, processor=None)
    with application.batches() as batches:
        assert batches._ask().result(PATIENCE) is not None
    assert scene.row().checkpoint.is_sentinel
    with application.batches() as batches:
        assert [record.data for record in next(batches)] == [b"0"]


def test_a_loop_in_a_coroutine(scene: Scene) -> None:
    expected = [scene.put(b"%d" % n) for n in range(3)]

    async def main() -> list[str]:
        async with scene.application(processor=None).records(timeout=2.0) as records:
            found: list[str] = []
            async for record in records:
                found.append(record.sequence_number)
                records.checkpoint()
            return found

    assert asyncio.run(main()) == expected
    assert scene.row().checkpoint.sequence_number == expected[-1]


def test_a_checkpoint_of_a_loop_that_has_lost_the_lease_says_so(scene: Scene) -> None:
    scene.put(b"0")
    with scene.application(processor=None).batches() as batches:
        batch = next(batches)
        row = scene.row()
        other = {"leaseOwner": {"S": "other"}, "leaseCounter": {"N": str(row.counter + 7)}}
        client = scene.server.client("dynamodb")
        item = client.get_item(TableName=scene.stream, Key={"leaseKey": {"S": row.key}})["Item"]
        client.put_item(TableName=scene.stream, Item={**item, **other})
        assert batch.checkpoint() is False


def test_mistakes_around_loops_have_errors(scene: Scene) -> None:
    application = scene.application(processor=None)
    batches = application.batches()
    with pytest.raises(ProcessorError, match=r"with application\.batches\(\) as batches"):
        next(iter(batches))
    with batches:
        iter(batches)
        with pytest.raises(ProcessorError, match="Another loop iterates"):
            iter(batches)
    with pytest.raises(ProcessorError, match="has begun already"), batches:
        pass
    with pytest.raises(ProcessorError, match="has a processor"):
        scene.application(processor=print).batches()
    with pytest.raises(OptionError, match="concurrency works with a processor"):
        scene.application({"concurrency": 2}, processor=None).records()
    with pytest.raises(OptionError, match="has no processor"):
        application.worker()


def test_a_coroutine_that_is_cancelled_as_its_loop_begins_leaves_no_worker(scene: Scene) -> None:
    batches = scene.application(processor=None).batches()

    async def main() -> None:
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        assert me is not None

        def cancel(call: Call) -> None:
            # The first call of many that a worker makes before it has begun.
            scene.server.kinesis.faults = None
            loop.call_soon_threadsafe(me.cancel)

        scene.server.kinesis.faults = cancel
        async with batches:
            pytest.fail("The block begins.")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert batches.worker.wait(0)


@contextmanager
def holding(
    scene: Scene, way: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A process that is at its record ``hold``; what it is told, and what it says."""
    command = [sys.executable, "-m", ways_process.__name__, way, scene.server.endpoint_url]
    with subprocess.Popen(
        [*command, scene.stream, "worker", str(folder / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process, process.stdin, process.stdout


@pytest.mark.parametrize(
    ("way", "signals", "is_processed"),
    [
        ("loop", [signal.SIGINT], False),
        ("loop", [signal.SIGTERM], True),
        ("async loop", [signal.SIGINT], False),
        ("async class", [signal.SIGINT], True),
        ("async class", [signal.SIGINT, signal.SIGINT], False),
    ],
)
def test_a_signal_in_the_midst_of_a_batch_ends_the_program_and_releases_its_leases(
    scene: Scene, seen: Seen, tmp_path: Path, way: str, *, signals: list[int], is_processed: bool
) -> None:
    last = scene.put(ways_process.HOLD)
    with holding(scene, way, tmp_path) as (process, given, said):
        process.send_signal(signals[0])
        assert said.readline() == "shutting down\n"
        for number in signals[1:]:
            process.send_signal(number)
        if is_processed:
            given.close()
        code = process.wait(PATIENCE)
    # Ctrl-C ends Python by the signal itself, which a shell calls 130.
    assert code == (0 if signals[0] == signal.SIGTERM else -signal.SIGINT)
    assert set(scene.owners().values()) == {None}
    checkpoint = scene.row().checkpoint
    assert checkpoint.sequence_number == last if is_processed else checkpoint.is_sentinel

    def handle(batch: RecordBatch) -> None:
        seen.add(*batch)

    scene.put(b"next")
    scene.start(processor=handle)
    seen.wait(b"next")
    assert (ways_process.HOLD in seen.data) is not is_processed


# --- several records at a time


@pytest.mark.parametrize("is_async", [False, True])
def test_keys_run_at_the_same_time_and_each_in_order(
    scene: Scene, seen: Seen, is_async: bool
) -> None:
    keys = [f"k{n}" for n in range(8)]
    for n in range(5):
        for key in keys:
            scene.put(f"{key}:{n}".encode(), key=key)
    busy, most, lock = dict.fromkeys(keys, 0), [0], threading.Lock()

    def begin(record: UserRecord) -> None:
        with lock:
            busy[str(record.partition_key)] += 1
            most[0] = max(most[0], sum(busy.values()))
            assert max(busy.values()) == 1

    def end(record: UserRecord) -> None:
        with lock:
            busy[str(record.partition_key)] -= 1
        seen.add(record)

    def handle(record: UserRecord) -> None:
        begin(record)
        time.sleep(0.02)
        end(record)

    async def handle_async(record: UserRecord) -> None:
        begin(record)
        await asyncio.sleep(0.02)
        end(record)

    worker = scene.start({"concurrency": 4}, processor=handle_async if is_async else handle)
    seen.wait(*(f"{key}:4".encode() for key in keys))
    assert worker.shutdown()
    assert most == [4]
    for key in keys:
        assert [d for d in seen.data if d.startswith(f"{key}:".encode())] == [
            f"{key}:{n}".encode() for n in range(5)
        ]


def test_a_checkpoint_waits_for_the_first_record_that_is_not_finished(
    scene: Scene, seen: Seen
) -> None:
    first = scene.put(b"first", key="a")
    scene.put(b"slow", key="b")
    scene.put(b"behind", key="c")
    is_over = threading.Event()

    def handle(record: UserRecord) -> None:
        if record.data == b"slow":
            assert is_over.wait(PATIENCE)
        seen.add(record)

    options = {"concurrency": 4, "checkpoint_records": 1}
    worker = scene.start(options, processor=handle)
    seen.wait(b"first", b"behind")
    eventually(lambda: scene.row().checkpoint.sequence_number == first)
    worker.request_shutdown()
    is_over.set()
    assert worker.shutdown()
    assert seen.data[-1] == b"slow"
    assert scene.row().checkpoint.sequence_number > first


def test_a_shutdown_checkpoints_what_has_ended_while_another_call_runs(
    scene: Scene, seen: Seen
) -> None:
    first = scene.put(b"first", key="a")
    scene.put(b"slow", key="b")
    may_end = {b"first": threading.Event(), b"slow": threading.Event()}

    def handle(record: UserRecord) -> None:
        seen.add(record)
        assert may_end[record.data].wait(PATIENCE)

    worker = scene.start({"concurrency": 4, "checkpoint_records": 1}, processor=handle)
    seen.wait(b"first", b"slow")
    worker.request_shutdown()
    eventually(lambda: worker.status()[0].state is not ShardState.PROCESSING)
    may_end[b"first"].set()
    eventually(lambda: not scene.row().checkpoint.is_sentinel)
    assert scene.row().checkpoint.sequence_number == first
    may_end[b"slow"].set()
    assert worker.shutdown()


def test_a_record_that_is_given_up_holds_up_no_other_key(scene: Scene, seen: Seen) -> None:
    scene.put(b"bad", key="a")
    last = scene.put(b"good", key="b")
    tries: list[UserRecord] = []

    def handle(record: UserRecord) -> None:
        if record.data == b"bad":
            tries.append(record)
            raise ValueError("bad")
        seen.add(record)

    worker = scene.start(
        {"concurrency": 4, "checkpoint_records": 1},
        processor=handle,
        on_error=Retry(attempts=2, then=Skip()),
    )
    seen.wait(b"good")
    eventually(lambda: scene.row().checkpoint.sequence_number == last)
    assert worker.shutdown()
    assert len(tries) == 2


def test_a_shard_that_is_stopped_is_left_once_no_call_runs(scene: Scene, seen: Seen) -> None:
    first = scene.put(b"first", key="c")
    scene.put(b"slow", key="b")
    scene.put(b"bad", key="a")
    has_failed, is_over = threading.Event(), threading.Event()

    def handle(record: UserRecord) -> None:
        if record.data == b"bad":
            has_failed.set()
            raise ValueError("bad")
        if record.data == b"slow":
            assert is_over.wait(PATIENCE)
        seen.add(record)

    options = {"concurrency": 4, "checkpoint_records": 1}
    worker = scene.start(options, processor=handle, on_error=Retry(attempts=1, then=Stop()))
    assert has_failed.wait(PATIENCE)
    seen.wait(b"first")
    renewed = scene.row().counter + 3
    eventually(lambda: scene.row().counter >= renewed)
    assert scene.row().owner is not None
    is_over.set()
    eventually(lambda: scene.row().owner is None)
    assert worker.shutdown()
    assert set(seen.data) == {b"first", b"slow"}
    assert scene.row().checkpoint.sequence_number > first


# --- the data of a batch


def test_a_record_that_cannot_be_decoded_is_named() -> None:
    records = [
        Record(data=data, partition_key="k", sequence_number=str(number))
        for number, data in enumerate([b'{"a": 1}', b"no json"], 100)
    ]
    batch = make_batch(records, stream="s", shard_id="0", millis_behind_latest=0)[0]
    assert batch[:1].json() == [{"a": 1}]
    assert batch[:1].json(dict[str, int]) == [{"a": 1}]
    assert batch.values(decode=len) == [8, 7]
    with pytest.raises(RecordDecodeError, match="Record 101:0 of shard 0") as raised:
        batch.json()
    assert raised.value.position == "101:0"
    with pytest.raises(IndexError, match="step"):
        batch[::2]
