"""Messages of driver and workers survive encoding, whatever bytes a record contained."""

from __future__ import annotations

import msgspec
import pytest

from sparkinesis.fleet.channel.messages import (
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ShutDown,
    Start,
    ToDriver,
    ToWorker,
    Wait,
    decode_for_driver,
    decode_for_worker,
    encode,
)
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.worker.reporting.failures import Failures, describe


def failures_of(error: Exception) -> Failures:
    failures = Failures()
    try:
        raise error
    except Exception as raised:  # noqa: BLE001 - any
        failures.note("shard-1", f"process_records failed: {raised}", raised)
    return failures


@pytest.mark.parametrize(
    "message",
    [
        Hello("w", 1, 2, 3, "host", 4, 5, 6, is_running=True, is_leaving=True),
        Report(
            (
                ShardStatus("s0", ShardState.PROCESSING, 12, 0.25, 99),
                ShardStatus("s1", ShardState.WAITING_ON_PARENT_SHARDS, None, None),
            ),
            99,
            True,
            failures_of(ValueError("bad")).snapshot(),
        ),
        Leaving("why", is_for_all=True),
        Ended(False, "error"),
    ],
)
def test_a_driver_reads_what_a_worker_says(message: ToDriver) -> None:
    assert decode_for_driver(encode(message)) == message


@pytest.mark.parametrize("message", [Start(), Wait(), ShutDown(1.5), Ping()])
def test_a_worker_reads_what_a_driver_says(message: ToWorker) -> None:
    assert decode_for_worker(encode(message)) == message


def test_neither_takes_the_others_messages() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_for_driver(encode(ShutDown(1.0)))
    with pytest.raises(msgspec.DecodeError):
        decode_for_worker(encode(Ended(True)))


def test_an_error_about_bytes_that_are_no_text_can_be_told() -> None:
    error = ValueError("bad record " + b"\xff\xfe".decode("utf-8", "surrogateescape"))
    report = Report((), 0, True, failures_of(error).snapshot())
    told = decode_for_driver(encode(report))
    assert isinstance(told, Report)
    (failure,) = told.failures
    for text in (failure.what, failure.error, failure.traceback):
        assert r"bad record \udcff\udcfe" in text
    assert decode_for_driver(encode(Ended(False, describe(error)))) is not None
