"""Lines that `tail --json` and `dead-letters --show --json` print, and `put` reads."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec

from sparkinesis.cli.streams.record_objects import parse_record, record_object
from sparkinesis.worker.batches.user_record import UserRecord
from tests.release.formats.offsets import INSTANT, NUMBERS, SHARDS

_ARRIVED = datetime.fromtimestamp(INSTANT / 1000 + 0.5, timezone.utc)
_RECORDS = {
    "text": UserRecord(
        b'{"plane": "Z\xc3\xbcrich"}', "plane 1", NUMBERS[0], 0, _ARRIVED, None, SHARDS[0]
    ),
    "bytes of an aggregated record": UserRecord(
        b"\xff\0", "plane 2", NUMBERS[1], 3, _ARRIVED, str(2**127), SHARDS[1]
    ),
    "without a key and a time": UserRecord(b"", None, NUMBERS[2], 0, None, None, SHARDS[2]),
}


def write() -> dict[str, Any]:
    """Return lines, by what each is an example of."""
    return {
        name: msgspec.json.encode(record_object(record, "flights")).decode()
        for name, record in _RECORDS.items()
    }


def read(line: Any) -> dict[str, Any]:
    """Return the record that is put."""
    keys, data = parse_record(line.encode())
    return {
        "partition_key": keys.partition_key,
        "explicit_hash_key": keys.explicit_hash_key,
        "data": data.hex(),
    }
