"""What `tail --json` prints of a record is what `put --json` puts."""

from __future__ import annotations

import json

import pytest

from sparkinesis.cli.streams.record_objects import data_fields, parse_record, record_object
from sparkinesis.worker.batches.user_record import make_user_record


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"text \xc3\xa9\twith\na line", "data"),
        (b"", "data"),
        (b"\xff\x00", "data_base64"),
        (b"\x1b[31mred", "data_base64"),
        (b"a\r\n", "data_base64"),
    ],
)
def test_data_is_text_or_base64_and_comes_back(data: bytes, name: str) -> None:
    assert list(data_fields(data)) == [name]
    record = make_user_record(data, "k", "12", 3, 1_790_000_000.5, "7", "shard-1")
    found = record_object(record, "s")
    assert parse_record(json.dumps(found).encode()) == (("k", "7"), data)
    del found[name]
    assert found == {
        "stream": "s",
        "shard": "shard-1",
        "sequence_number": "12",
        "sub_sequence_number": 3,
        "partition_key": "k",
        "explicit_hash_key": "7",
        "arrived_at": "2026-09-21T14:13:20.500Z",
    }
