"""Messages of supervisor and workers survive encoding, whatever bytes a record contained."""

from __future__ import annotations

from sparkinesis.worker.reporting.failures import Failures, describe
from sparkinesis.worker.supervision.control_messages import (
    Ended,
    Report,
    decode_for_supervisor,
    encode,
)


def failures_of(error: Exception) -> Failures:
    failures = Failures()
    try:
        raise error
    except Exception as raised:  # noqa: BLE001 - any
        failures.note("shard-1", f"process_records failed: {raised}", raised)
    return failures


def test_an_error_about_bytes_that_are_no_text_can_be_told() -> None:
    error = ValueError("bad record " + b"\xff\xfe".decode("utf-8", "surrogateescape"))
    report = Report((), 0, True, failures_of(error).snapshot())
    told = decode_for_supervisor(encode(report))
    assert isinstance(told, Report)
    (failure,) = told.failures
    for text in (failure.what, failure.error, failure.traceback):
        assert r"bad record \udcff\udcfe" in text
    assert decode_for_supervisor(encode(Ended(False, describe(error)))) is not None
