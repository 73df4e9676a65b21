"""The sink: every row is stored, order is kept where asked, and aggregates suit every reader."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from aws_kinesis_agg.deaggregator import deaggregate_records

from sparkinesis.errors import ServiceError
from sparkinesis.local import Call, Fault, FaultPlan, LocalServer, ManualClock
from sparkinesis.local.limits import Limits
from sparkinesis.source.writer import write_batches
from sparkinesis.source.options import Options
from sparkinesis.source.rows import RecordRefusedError
from sparkinesis.source.write_options import write_options
from sparkinesis.stream.retry import Retry
from sparkinesis.stream.routing import hash_key
from tests.engine import Query
from tests.sink import Row, arrow, stored, write
from tests.streams import merge_neighbours, split

MODES = {
    "plain": {},
    "ordered": {"ordered": "true"},
    "aggregated": {"aggregation": "true", "aggregationMaxSize": "2000"},
    "aggregated and ordered": {
        "aggregation": "true",
        "aggregationMaxSize": "2000",
        "ordered": "true",
    },
}


def numbered(count: int, keys: int, size: int = 20, seed: int = 0) -> list[Row]:
    """Rows whose data begins with their number; a tenth has an explicit hash key of its key's."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for n in range(count):
        key = rng.randrange(keys)
        explicit = str(hash_key(f"other {key}", None)) if key % 10 == 0 else None
        rows.append((f"k{key}", explicit, b"%08d" % n + bytes(rng.randrange(size))))
    return rows


def in_parts(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def user_records(kinesis: Any, stream: str) -> dict[str, list[Row]]:
    """What de-aggregators find, shard by shard, children after their parents."""
    return {
        shard: [
            (
                r["kinesis"]["partitionKey"],
                r["kinesis"].get("explicitHashKey"),
                r["kinesis"]["data"],
            )
            for r in deaggregate_records([_as_lambda(r) for r in records])
        ]
        for shard, records in stored(kinesis, stream).items()
    }


def assert_order(per_shard: dict[str, list[Row]]) -> None:
    """Numbers of a key rise, once what is stored again is left out."""
    last: defaultdict[str, int] = defaultdict(lambda: -1)
    seen: set[bytes] = set()
    for rows in per_shard.values():
        for key, _, data in rows:
            assert key is not None
            assert data is not None
            if data not in seen:
                assert int(data[:8]) > last[key]
                last[key] = int(data[:8])
            seen.add(data)
