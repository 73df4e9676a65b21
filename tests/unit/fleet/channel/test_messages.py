"""Messages of driver and workers survive encoding, whatever bytes a record contained."""

from __future__ import annotations

from sparkinesis.fleet.channel.messages import decode_for_driver, encode
from sparkinesis.worker.crew.messages import Ended, Report
from sparkinesis.worker.reporting.failures import Failures, describe


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
    told = decode_for_driver(encode(report))
    assert isinstance(told, Report)
    (failure,) = told.failures
    for text in (failure.what, failure.error, failure.traceback):
        assert r"bad record \udcff\udcfe" in text
    assert decode_for_driver(encode(Ended(False, describe(error)))) is not None
