"""Where a read from an instant begins: to the millisecond or to the second, and inclusive or not.

Every batch of a query ends at an instant, which the planner finds by AT_TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.position import AtTimestamp
from tests.aws.answer import Answer, all_of
from tests.aws.bench import Bench, BenchStream

_PLANNING = "src/sparkinesis/source/planning/probing/end_in_shard.py"
_EARLY = "src/sparkinesis/stream/reading/early_records.py"
_POSITION = "src/sparkinesis/stream/position.py"

MS, SECOND = "to the millisecond", "to the second"
OLDEST, REFUSED, EMPTY = "the oldest record", "refused", "an iterator without records"

RECORDS = 16
_SPACING = 0.13


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    shard = stream.open_shards()[0]
    for n in range(RECORDS):
        stream.put(shard, b"at-%d" % n)
        bench.sleep(_SPACING)
    stored = stream.read(shard.id, RECORDS)
    index = {one.sequence_number: n for n, one in enumerate(stored)}

    def begins(at_ms: int) -> int | None:
        first = stream.first(shard.id, AtTimestamp(at_ms))
        return None if first is None else index.get(first.sequence_number)

    arrivals = [one.arrived_ms for one in stored]
    instants = sorted({at + by for at in arrivals[2:-2] for by in (-1, 0, 1)})
    reads = {at: begins(at) for at in instants}
    _, now_ms = stream.list_shards()
    try:
        ahead = stream.first(shard.id, AtTimestamp(now_ms + 3_600_000), pages=2)
        future = EMPTY if ahead is None else "records"
    except SparkinesisError:
        future = REFUSED
    before_all = begins(arrivals[0] - 86_400_000)
    yield Answer(
        "at_timestamp.precision",
        "How exact is AT_TIMESTAMP?",
        precision(arrivals, reads),
        {MS},
        "to the millisecond",
        (_PLANNING, _EARLY, _POSITION),
        f"{len(reads)} instants",
    )
    included, note = all_of(
        [n is not None and arrivals[n] <= at for at, n in reads.items() if at in arrivals],
        "instants",
    )
    yield Answer(
        "at_timestamp.inclusive",
        "Does AT_TIMESTAMP return a record that arrived at that very millisecond?",
        included,
        {True},
        "yes: an instant is where a batch ends, and where the next one begins",
        (_PLANNING, _EARLY, _POSITION),
        note,
    )
    later, note = all_of(
        [n == expected(arrivals, at) for at, n in reads.items() if at not in arrivals], "instants"
    )
    yield Answer(
        "at_timestamp.between",
        "Does an instant between two records return the later one?",
        later,
        {True},
        "yes",
        (_PLANNING, _EARLY),
        note,
    )
    yield Answer(
        "at_timestamp.before_all",
        "Where does an instant before the stream's creation begin?",
        OLDEST if before_all == 0 else f"record {before_all}",
        {OLDEST},
        "at the oldest record",
        (_EARLY, "src/sparkinesis/stream/reading/retention.py"),
    )
    yield Answer(
        "at_timestamp.future",
        "What does an instant an hour ahead answer?",
        future,
        {REFUSED, EMPTY},
        "either an error or an iterator without records; no position is ahead of the service's "
        "clock",
        ("src/sparkinesis/stream/calls/explain.py",),
    )
    yield Answer(
        "at_timestamp.arrival_times",
        "How exact are the arrival times of records?",
        SECOND if all(arrived % 1000 == 0 for arrived in arrivals) else MS,
        {MS, SECOND},
        "to the millisecond; whole seconds are handled, at more repeated reading",
        ("src/sparkinesis/stream/page.py", _EARLY),
    )


def expected(arrivals: Sequence[int], at_ms: int) -> int | None:
    """Return the index of the first record that arrived at ``at_ms`` or later."""
    return next((n for n, arrived in enumerate(arrivals) if arrived >= at_ms), None)


def precision(arrivals: Sequence[int], reads: Mapping[int, int | None]) -> str | None:
    """Return how exact reads are, by the record with which each began; None if none tells."""
    exact = {at: expected(arrivals, at) for at in reads}
    to_second = {at: expected(arrivals, at // 1000 * 1000) for at in reads}
    if exact == to_second:
        return None
    return MS if reads == exact else SECOND if reads == to_second else "neither"
