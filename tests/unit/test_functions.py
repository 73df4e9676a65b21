"""What is decompressed stays small."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from sparkinesis import functions
from sparkinesis.errors import OptionError


def test_a_payload_that_becomes_too_large_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST_BYTES", 1000)
    records = [zlib.compress(b"0" * length) for length in (1000, 1001)]
    inflated = functions.inflate(pa.array([*records, None]))
    assert inflated.to_pylist() == [b"0" * 1000, None, None]


def test_payloads_that_exceed_an_arrow_batch_are_an_error_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "MOST_IN_BATCH", 3999)
    column = pa.array([zlib.compress(b"0" * 1000)] * 4)
    with pytest.raises(OptionError, match=r"spark\.sql\.execution\.arrow\.maxRecordsPerBatch"):
        functions.inflate(column)
    assert len(functions.inflate(column.cast(pa.large_binary()))) == 4
