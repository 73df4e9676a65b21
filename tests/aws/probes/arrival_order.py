"""The order of arrival times: within a shard, between shards, and against the service's clock.

The delay of a watermark, and each margin for "no record arrived before", cover this disorder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from sparkinesis.stream.position import TRIM_HORIZON
from tests.aws.answer import Answer
from tests.aws.bench import Bench, BenchStream, Stored

DELAY_MS = 10_000
"""The delay of a watermark that docs/time.md suggests."""
MARGIN_MS = 60_000
"""CLOCK_MARGIN_MS of the retention check."""

_TIME = "docs/time.md"
_INSTANT = "src/sparkinesis/source/planning/batch_instant.py"
_RETENTION = "src/sparkinesis/stream/reading/retention.py"

PRODUCERS = 4
CALLS = 40
EACH = 4
"""Producers that put at once, calls of each, and records a call."""
PAIRS = 10


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    one, other = stream.open_shards()[:2]
    before = _count(stream, one.id)

    def produce(producer: int) -> None:
        for n in range(CALLS):
            stream.put(one, *(b"order-%d-%d-%d" % (producer, n, k) for k in range(EACH)))

    with ThreadPoolExecutor(PRODUCERS) as pool:
        for done in [pool.submit(produce, n) for n in range(PRODUCERS)]:
            done.result()
    count = PRODUCERS * CALLS * EACH
    stored = _named(stream.read(one.id, before + count), b"order-")
    start = _count(stream, other.id)
    clocks = []
    for n in range(PAIRS):
        stream.put_each([(one, b"pair-%d" % n), (other, b"pair-%d" % n)])
        clocks.append(stream.list_shards()[1])
        bench.sleep(0.1)
    left = _named(stream.read(one.id, before + count + PAIRS), b"pair-")
    right = _named(stream.read(other.id, start + PAIRS), b"pair-")
    numbers = [record.number for record in stored]
    pairs = [abs(a.arrived_ms - b.arrived_ms) for a, b in zip(left, right, strict=False)]
    off = [abs(clock - one.arrived_ms) for clock, one in zip(clocks, left, strict=False)]
    records = f"{len(stored):,} records of {PRODUCERS} producers at once"
    yield Answer(
        "order.in_shard_ms",
        "By how much are the arrival times of one shard out of order?",
        disorder_ms([record.arrived_ms for record in stored]) if stored else None,
        range(DELAY_MS + 1),
        f"at most {DELAY_MS:,} ms, the suggested delay of a watermark",
        (_TIME, _INSTANT, _RETENTION),
        records,
        "ms",
    )
    yield Answer(
        "order.between_shards_ms",
        "By how much do the arrival times differ of records that one PutRecords call stores in two "
        "shards?",
        max(pairs, default=None),
        range(DELAY_MS + 1),
        f"at most {DELAY_MS:,} ms: batches advance in time in all shards together",
        (_TIME, _INSTANT),
        f"{len(pairs)} calls",
        "ms",
    )
    yield Answer(
        "order.off_clock_ms",
        "How far from the service's clock is the arrival time of a record that it has just stored?",
        max(off, default=None),
        range(MARGIN_MS + 1),
        f"at most {MARGIN_MS:,} ms",
        (_RETENTION, "src/sparkinesis/stream/calls/client.py"),
        "the service tells its clock in whole seconds",
        "ms",
    )
    yield Answer(
        "order.sequence",
        "Do records come in the order of their sequence numbers?",
        all(a < b for a, b in itertools.pairwise(numbers)) if numbers else None,
        {True},
        "yes, strictly ascending within a shard",
        ("src/sparkinesis/stream/position.py", _RETENTION),
        records,
    )


def _count(stream: BenchStream, shard_id: str) -> int:
    """Return how many records the shard has, so that a later read knows when it has them all."""
    iterator: str | None = stream.iterator(shard_id, TRIM_HORIZON)
    count, empty = 0, 0
    while iterator is not None and empty < 3:
        page = stream.page(shard_id, iterator).page
        count += len(page.records)
        empty = 0 if page.records else empty + 1
        iterator = page.next_shard_iterator
    return count


def _named(records: Sequence[Stored], start: bytes) -> list[Stored]:
    return [record for record in records if record.data.startswith(start)]


def disorder_ms(arrivals: Sequence[int]) -> int:
    """Return by how much, at most, a record arrived before one that is in front of it."""
    newest = itertools.accumulate(arrivals, max)
    return max((top - arrived for top, arrived in zip(newest, arrivals, strict=True)), default=0)
