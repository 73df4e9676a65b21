"""The answer of GetRecords and the payload of a SubscribeToShardEvent."""

from __future__ import annotations

from typing import Any

import msgspec


class RecordPage(msgspec.Struct, frozen=True):
    """Records as the shard stores them (encoded JSON objects), and the answer's other members."""

    records: list[bytes]
    rest: dict[str, Any]
