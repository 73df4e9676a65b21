"""Sequence numbers as positions: that of a record, an older one, and one of a deleted stream.

A record that retention has removed cannot be measured in minutes: no stream keeps records for less
than a day. The two nearest cases are: a number that is older than all of the shard, and a number of
a deleted stream of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError, SparkinesisError
from sparkinesis.stream.position import AfterRecord
from tests.aws.answer import Answer
from tests.aws.bench import Bench, BenchStream, Stored

_RETENTION = "src/sparkinesis/stream/reading/retention.py"
_EXPLAIN = "src/sparkinesis/stream/calls/explain.py"
_START = "src/sparkinesis/worker/lifecycle/shard/starting.py"

ITSELF, NEXT = "that record", "the next record"
UNKNOWN, OLDEST = "refused as unknown", "the oldest record"
CLOCK_MARGIN_MS = 60_000

RECORDS = 4
_COUNTER = 1 << 80
"""The lowest bit of the counter in a sequence number (its layout is in the local server's
`sequence.py`)."""


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    stream = bench.create_stream("again", 1)
    stored = _fill(stream)
    shard_id = stream.open_shards()[0].id
    second = stored[1].sequence_number
    yield Answer(
        "position.at",
        "With which record does AT_SEQUENCE_NUMBER begin?",
        _answer(stream, shard_id, second, {stored[1]: ITSELF, stored[2]: NEXT}),
        {ITSELF},
        "with that record: so a reader sees whether it is still kept",
        (_RETENTION, "src/sparkinesis/stream/position.py"),
    )
    yield Answer(
        "position.after",
        "With which record does AFTER_SEQUENCE_NUMBER begin?",
        _answer(stream, shard_id, second, {stored[1]: ITSELF, stored[2]: NEXT}, inclusive=False),
        {NEXT},
        "with the next record",
        ("src/sparkinesis/stream/reading/shard_cursor.py", "src/sparkinesis/stream/position.py"),
    )
    older = str(stored[0].number - 1000 * _COUNTER)
    yield Answer(
        "position.older",
        "What does a sequence number answer that is older than the shard's first record?",
        _answer(stream, shard_id, older, {stored[0]: OLDEST}),
        {UNKNOWN, OLDEST},
        "an error, or the oldest record: both are recognised as an expired position",
        (_RETENTION, _EXPLAIN, _START),
        "an invented number",
    )
    bench.remove(stream.name)
    stream = bench.create_stream("again", 1)
    summary = stream.client.describe()
    recreated = _fill(stream)
    shard_id = stream.open_shards()[0].id
    yield Answer(
        "position.of_deleted",
        "What does a sequence number of a deleted stream answer, in a new stream of its name?",
        _answer(stream, shard_id, stored[-1].sequence_number, {recreated[0]: OLDEST}),
        {UNKNOWN, OLDEST},
        "an error, or the oldest record: both are recognised as a position of another stream",
        (_RETENTION, _EXPLAIN, _START),
    )
    yield Answer(
        "position.created_off_ms",
        "How long before the service's clock is the StreamCreationTimestamp of a stream that has "
        "just become usable?",
        abs(summary.service_time_ms - summary.created_ms),
        range(CLOCK_MARGIN_MS + 1),
        f"at most {CLOCK_MARGIN_MS:,} ms: a stored position that is older is of another stream",
        (_RETENTION,),
        "includes the time until the stream was ACTIVE",
        "ms",
    )
    yield Answer(
        "position.trimmed",
        "What does a sequence number answer whose record retention has removed?",
        None,
        {UNKNOWN, OLDEST},
        "an error, or the oldest record kept",
        (_RETENTION, _EXPLAIN, _START),
        "no stream keeps records for less than 24 hours; position.older and position.of_deleted "
        "are the nearest cases",
    )


def _fill(stream: BenchStream) -> list[Stored]:
    shard = stream.open_shards()[0]
    for n in range(RECORDS):
        stream.put(shard, b"position-%d" % n)
    return stream.read(shard.id, RECORDS)


def _answer(
    stream: BenchStream,
    shard_id: str,
    number: str,
    names: dict[Stored, str],
    *,
    inclusive: bool = True,
) -> str:
    """Return the name of the first record of a read from a number, or how it is refused."""
    try:
        first = stream.first(shard_id, AfterRecord(number), inclusive=inclusive)
    except (PositionNotFoundError, ShardNotFoundError):
        return UNKNOWN
    except SparkinesisError as error:
        return f"another error: {type(error).__name__}"
    return "no record" if first is None else names.get(first, "another record")
