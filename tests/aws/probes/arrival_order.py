"""The order of arrival times: within a shard, between shards, and against the service's clock.

The delay of a watermark, and each margin for "no record arrived before", cover this disorder.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sparkinesis.stream.position import TRIM_HORIZON
from tests.aws.bench import Bench, Stored
from tests.aws.findings import Answer, Question

DELAY_MS = 10_000
"""The delay of a watermark that docs/time.md suggests."""
MARGIN_MS = 60_000
"""CLOCK_MARGIN_MS of the retention check."""

_TIME = "docs/time.md"
_INSTANT = "src/sparkinesis/source/planning/batch_instant.py"
_RETENTION = "src/sparkinesis/stream/reading/retention.py"

QUESTIONS = (
    Question(
        "order.in_shard_ms",
        "By how much are the arrival times of one shard out of order?",
        f"at most {DELAY_MS:,} ms, the suggested delay of a watermark",
        (_TIME, _INSTANT, _RETENTION),
        unit="ms",
        most=DELAY_MS,
    ),
    Question(
        "order.between_shards_ms",
        "By how much do the arrival times differ of records that one PutRecords call stores in two "
        "shards?",
        f"at most {DELAY_MS:,} ms: batches advance in time in all shards together",
        (_TIME, _INSTANT),
        unit="ms",
        most=DELAY_MS,
    ),
    Question(
        "order.off_clock_ms",
        "How far from the service's clock is the arrival time of a record that it has just stored?",
        f"at most {MARGIN_MS:,} ms",
        (_RETENTION, "src/sparkinesis/stream/calls/client.py"),
        unit="ms",
        most=MARGIN_MS,
    ),
    Question(
        "order.sequence",
        "Do records come in the order of their sequence numbers?",
        "yes, strictly ascending within a shard",
        ("src/sparkinesis/stream/position.py", _RETENTION),
        frozenset({True}),
    ),
)

PRODUCERS = 4
CALLS = 40
EACH = 4
"""Producers that put at once, calls of each, and records a call."""
PAIRS = 10


@dataclass(frozen=True, slots=True)
class Observed:
    arrivals: Sequence[int]
    """Of one shard, in its order; epoch ms."""
    numbers: Sequence[int]
    """Sequence numbers, in the order of delivery."""
    pairs: Sequence[tuple[int, int]]
    """Arrival times in two shards of what one call put."""
    clocks: Sequence[tuple[int, int]]
    """The service's clock around a put, in whole seconds or ms, and the record's arrival."""


def measure(bench: Bench, stream: str) -> Observed:
    reader = bench.stream(stream)
    one, other = reader.open_shards()[:2]
    before = _after_all(bench, stream, one.id)

    def produce(producer: int) -> None:
        for n in range(CALLS):
            reader.put(one, *(b"order-%d-%d-%d" % (producer, n, k) for k in range(EACH)))

    with ThreadPoolExecutor(PRODUCERS) as pool:
        for done in [pool.submit(produce, n) for n in range(PRODUCERS)]:
            done.result()
    count = PRODUCERS * CALLS * EACH
    stored = _named(reader.read(one.id, before + count), b"order-")
    bench.note(f"{len(stored):,} records of {PRODUCERS} producers read")
    start = _after_all(bench, stream, other.id)
    clocks = []
    for n in range(PAIRS):
        reader.put_each([(one, b"pair-%d" % n), (other, b"pair-%d" % n)])
        clocks.append(reader.list_shards()[1])
        bench.limit.sleep(0.1)
    left = _named(reader.read(one.id, before + count + PAIRS), b"pair-")
    right = _named(reader.read(other.id, start + PAIRS), b"pair-")
    return Observed(
        [record.arrived_ms for record in stored],
        [record.number for record in stored],
        [(a.arrived_ms, b.arrived_ms) for a, b in zip(left, right, strict=False)],
        [(clock, record.arrived_ms) for clock, record in zip(clocks, left, strict=False)],
    )


def _after_all(bench: Bench, stream: str, shard_id: str) -> int:
    """Return how many records the shard has, so that a later read knows when it has them all."""
    reader = bench.stream(stream)
    iterator: str | None = reader.iterator(shard_id, TRIM_HORIZON)
    count, empty = 0, 0
    while iterator is not None and empty < 3:
        page = reader.page(shard_id, iterator).page
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


def answers(seen: Observed) -> dict[str, Answer]:
    pairs = [abs(a - b) for a, b in seen.pairs]
    off = [abs(clock - arrived) for clock, arrived in seen.clocks]
    records = f"{len(seen.arrivals):,} records of {PRODUCERS} producers at once"
    ascending = all(a < b for a, b in itertools.pairwise(seen.numbers))
    return {
        "order.in_shard_ms": Answer(disorder_ms(seen.arrivals) if seen.arrivals else None, records),
        "order.between_shards_ms": Answer(max(pairs, default=None), f"{len(pairs)} calls"),
        "order.off_clock_ms": Answer(
            max(off, default=None), "the service tells its clock in whole seconds"
        ),
        "order.sequence": Answer(ascending if seen.numbers else None, records),
    }
