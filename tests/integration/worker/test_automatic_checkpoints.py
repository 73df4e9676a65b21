"""Automatic checkpoints of processors that never ask for one: what a next reader gets again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import Retry, Stop
from tests import pace
from tests.integration.worker.test_w2_checkpoints import crash
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put_at, split

RETRIEVALS = ("polling", "efo")

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

FIRST = "shardId-000000000000"
NEVER = 3600.0


class Silent(Journaling):
    """Never checkpoints, not even the end of its shard."""

    def shard_ended(self, checkpointer: Any) -> None:
        self.journal.write(self.shard.id, "shard_ended")


def put_numbers(kinesis: Any, stream: str, first: int, last: int) -> list[str]:
    """Put these numbers into the first shard; return their sequence numbers."""
    return [put_at(kinesis, stream, b"%d" % n) for n in range(first, last + 1)]


def row_of(application: Make, shard: str = FIRST) -> Any:
    return application().table().get(shard, consistent=True)


def wait_for_row(application: Make, sequence_number: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while row_of(application).checkpoint.sequence_number != sequence_number:
        assert time.monotonic() < deadline, row_of(application)
        time.sleep(0.05)


def test_a_crash_repeats_no_more_than_the_interval(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    put_numbers(kinesis, stream, 1, 8)
    options = {"checkpoint_records": 3}
    worker = start(application(worker_id="w", processor=lambda: Silent(journal), options=options))
    journal.wait_for_data(b"8")
    crash(worker)
    resumed = Journal()
    start(application(worker_id="w", processor=lambda: Silent(resumed), options=options))
    resumed.wait_for_data(b"8")
    assert resumed.data() == [b"7", b"8"]


def test_a_quiet_shard_is_checkpointed_in_time(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    numbers = put_numbers(kinesis, stream, 1, 3)
    start(application(processor=lambda: Silent(journal), options={"checkpoint_seconds": 0.2}))
    wait_for_row(application, numbers[-1])
    numbers = put_numbers(kinesis, stream, 4, 5)
    wait_for_row(application, numbers[-1])
    assert journal.data() == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("retrieval", ["polling"])  # fan-out may give all in one batch
def test_a_batch_that_waits_to_be_tried_again_keeps_no_other_waiting(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    def fail(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"4" for record in batch.records):
            raise ValueError("bad")

    numbers = put_numbers(kinesis, stream, 1, 4)
    start(
        application(
            processor=lambda: Silent(journal, on_records=fail),
            on_error=Retry(base=NEVER, cap=NEVER),
            # Pages that are fetched ahead wake the shard, so they must have come before.
            options={
                "checkpoint_seconds": pace.seconds(2.0),
                "max_records": 1,
                "max_pages_ahead": 1,
            },
        )
    )
    wait_for_row(application, numbers[2])


@pytest.mark.parametrize("option", ["checkpoint_seconds", "checkpoint_records", None])
def test_a_shutdown_checkpoints_what_was_processed(
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
    option: str | None,
) -> None:
    numbers = put_numbers(kinesis, stream, 1, 3)
    options = {"checkpoint_seconds": NEVER, "checkpoint_records": 1000}
    worker = start(
        application(
            processor=lambda: Silent(journal), options={option: options[option]} if option else {}
        )
    )
    journal.wait_for_data(b"3")
    assert worker.shutdown(PATIENCE)
    assert row_of(application).checkpoint.sequence_number == (
        numbers[-1] if option else "TRIM_HORIZON"
    )


def test_a_shutdown_request_that_fails_leaves_the_checkpoint_where_it_was(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """What the processor wanted to finish there may not be done."""

    def fail(checkpointer: Any) -> None:
        raise ValueError("cannot finish")

    put_numbers(kinesis, stream, 1, 3)
    worker = start(
        application(
            processor=lambda: Silent(journal, on_shutdown=fail),
            options={"checkpoint_seconds": NEVER},
        )
    )
    journal.wait_for_data(b"3")
    assert worker.shutdown(PATIENCE)
    assert row_of(application).checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


@pytest.mark.parametrize("policy", [Retry(base=NEVER, cap=NEVER), Stop()])
def test_a_failed_batch_is_never_covered_and_those_before_it_are_when_its_shard_is_left(
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
    policy: Any,
) -> None:
    def fail(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"4" for record in batch.records):
            raise ValueError("bad")

    numbers = put_numbers(kinesis, stream, 1, 3)
    worker = start(
        application(
            processor=lambda: Silent(journal, on_records=fail),
            on_error=policy,
            options={"checkpoint_seconds": NEVER},
        )
    )
    journal.wait_for_data(b"3")
    put_numbers(kinesis, stream, 4, 6)
    journal.wait(lambda: (FIRST, "failed") in journal.calls())
    if isinstance(policy, Stop):
        journal.wait(lambda: (FIRST, "lease_lost") in journal.calls())
    assert worker.shutdown(PATIENCE)
    assert row_of(application).checkpoint.sequence_number == numbers[-1]


def test_the_end_of_a_shard_is_checkpointed_and_its_children_follow(
    application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    put_numbers(kinesis, stream, 1, 3)
    parent = split(kinesis, stream)
    put_at(kinesis, stream, b"child")
    start(application(processor=lambda: Silent(journal), options={"checkpoint_seconds": NEVER}))
    journal.wait_for_data(b"child")
    assert journal.calls("shard_ended").count((parent, "shard_ended")) == 1


def test_an_end_that_cannot_be_checkpointed_is_not_told_again(
    application: Make,
    start: Start,
    server: LocalServer,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
) -> None:
    refused = threading.Event()

    class AtTheEnd(Silent):
        def shard_ended(self, checkpointer: Any) -> None:
            super().shard_ended(checkpointer)
            server.kinesis.faults = refuse

    def refuse(call: Call) -> Fault | None:
        if call.operation != "UpdateItem" or call.stream != stream or refused.is_set():
            return None
        refused.set()
        return Fault.error("AccessDeniedException", status=400)

    parent = split(kinesis, stream)
    put_at(kinesis, stream, b"child")
    try:
        start(
            application(
                processor=lambda: AtTheEnd(journal),
                options={"checkpoint_seconds": NEVER, "task_backoff": 0.05},
            )
        )
        journal.wait_for_data(b"child")
    finally:
        server.kinesis.faults = None
    assert refused.is_set()
    assert journal.calls("shard_ended").count((parent, "shard_ended")) == 1


def test_processing_waits_for_a_checkpoint_that_is_due(
    application: Make,
    start: Start,
    server: LocalServer,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
) -> None:
    """Otherwise more would be repeated than the option says."""
    refusals: list[str] = []

    def refuse(call: Call) -> Fault | None:
        if call.operation != "UpdateItem" or call.stream != stream or len(refusals) >= 3:
            return None
        refusals.append(str(len(journal.data())))
        return Fault.error("AccessDeniedException", status=400)

    def begin(batch: Any, checkpointer: Any) -> None:
        server.kinesis.faults = refuse

    numbers = put_numbers(kinesis, stream, 1, 5)
    try:
        worker = start(
            application(
                processor=lambda: Silent(journal, on_records=begin),
                options={
                    "checkpoint_records": 2,
                    "task_backoff": 0.05,
                    "failover_time": pace.seconds(20.0),
                },
            )
        )
        journal.wait_for_data(b"5")
    finally:
        server.kinesis.faults = None
    assert refusals == ["2", "2", "2"]
    assert any("An automatic checkpoint failed on" in one.what for one in worker.failures())
    assert worker.shutdown(PATIENCE)
    assert row_of(application).checkpoint.sequence_number == numbers[-1]
