"""The answer of GetRecords and the payload of a SubscribeToShardEvent."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from sparkinesis.local.model import record_log
from sparkinesis.local.model.record_log import Span


@dataclasses.dataclass(frozen=True)
class Records:
    """Consecutive records of a shard in both encodings; in JSON, a comma follows each of them."""

    count: int
    json: Span
    cbor: Span


NO_RECORDS = Records(0, record_log.NO_RECORDS, record_log.NO_RECORDS)


class RecordPage(msgspec.Struct, frozen=True):
    """Records as the shard stores them, and the answer's other members."""

    records: Records
    rest: dict[str, Any]
