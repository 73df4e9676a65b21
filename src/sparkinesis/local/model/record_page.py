"""The answer of GetRecords and the payload of a SubscribeToShardEvent."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from sparkinesis.local.model.record_log import Span


@dataclasses.dataclass(frozen=True)
class Records:
    """Consecutive records of a shard in both encodings; in JSON, a comma follows each of them.

    next_position: of the record behind them. bytes: the size of their data and keys.
    """

    next_position: int
    count: int = 0
    json: Span = dataclasses.field(default_factory=list)
    cbor: Span = dataclasses.field(default_factory=list)
    bytes: int = 0


class RecordPage(msgspec.Struct, frozen=True):
    """Records as the shard stores them, and the answer's other members."""

    records: Records
    rest: dict[str, Any]
