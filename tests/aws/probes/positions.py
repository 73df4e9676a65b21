"""Sequence numbers as positions: that of a record, an older one, and one of a deleted stream.

A record that retention has removed cannot be measured in minutes: no stream keeps records for less
than a day. The two nearest cases are: a number that is older than all of the shard, and a number of
a deleted stream of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError, SparkinesisError
from sparkinesis.stream.position import AfterRecord
from tests.aws.bench import Bench, BenchStream, Stored
from tests.aws.findings import Answer, Question
from tests.aws.resources import NotReadyError, Resource

_RETENTION = "src/sparkinesis/stream/reading/retention.py"
_EXPLAIN = "src/sparkinesis/stream/calls/explain.py"
_START = "src/sparkinesis/worker/lifecycle/shard/starting.py"

ITSELF, NEXT = "that record", "the next record"
UNKNOWN, OLDEST = "refused as unknown", "the oldest record"
NOTHING = "no record"
CLOCK_MARGIN_MS = 60_000

QUESTIONS = (
    Question(
        "position.at",
        "With which record does AT_SEQUENCE_NUMBER begin?",
        "with that record: so a reader sees whether it is still kept",
        (_RETENTION, "src/sparkinesis/stream/position.py"),
        frozenset({ITSELF}),
    ),
    Question(
        "position.after",
        "With which record does AFTER_SEQUENCE_NUMBER begin?",
        "with the next record",
        ("src/sparkinesis/stream/reading/shard_cursor.py", "src/sparkinesis/stream/position.py"),
        frozenset({NEXT}),
    ),
    Question(
        "position.older",
        "What does a sequence number answer that is older than the shard's first record?",
        "an error, or the oldest record: both are recognised as an expired position",
        (_RETENTION, _EXPLAIN, _START),
        frozenset({UNKNOWN, OLDEST}),
    ),
    Question(
        "position.of_deleted",
        "What does a sequence number of a deleted stream answer, in a new stream of its name?",
        "an error, or the oldest record: both are recognised as a position of another stream",
        (_RETENTION, _EXPLAIN, _START),
        frozenset({UNKNOWN, OLDEST}),
    ),
    Question(
        "position.created_off_ms",
        "How long before the service's clock is the StreamCreationTimestamp of a stream that has "
        "just become usable?",
        f"at most {CLOCK_MARGIN_MS:,} ms: a stored position that is older is of another stream",
        (_RETENTION,),
        unit="ms",
        most=CLOCK_MARGIN_MS,
    ),
    Question(
        "position.trimmed",
        "What does a sequence number answer whose record retention has removed?",
        "an error, or the oldest record kept",
        (_RETENTION, _EXPLAIN, _START),
        frozenset({UNKNOWN, OLDEST}),
    ),
)

RECORDS = 4
_COUNTER = 1 << 80
"""The lowest bit of the counter in a sequence number (its layout is in the local server's
`sequence.py`)."""


@dataclass(frozen=True, slots=True)
class Observed:
    stored: Sequence[str]
    """Sequence numbers of the stream's records, in order."""
    at_second: str | None
    after_second: str | None
    """The number of the first record AT, and AFTER, the second one; None: no record."""
    older: str
    of_deleted: str
    """The answer to a number: `UNKNOWN`, `NOTHING`, another error, or a record's number."""
    recreated: Sequence[str]
    created_off_ms: int
    """The service's clock when the new stream is first usable, less its StreamCreationTimestamp."""


def measure(bench: Bench) -> Observed:
    name = bench.resources.create_stream("again", 1)
    reader = bench.stream(name)
    stored = _fill(reader)
    shard_id = reader.open_shards()[0].id
    second = AfterRecord(stored[1].sequence_number)
    at = reader.first(shard_id, second, inclusive=True)
    after = reader.first(shard_id, second)
    older = _answer(reader, shard_id, str(stored[0].number - 1000 * _COUNTER))
    bench.note(f"{len(stored)} records read by number; the stream is made anew")
    left = bench.resources.remove([Resource("stream", name)])
    if left:
        raise NotReadyError(f"the stream could not be deleted: {left}")
    bench.limit.check()
    bench.resources.create_stream("again", 1)
    fresh = bench.stream(name)
    summary = fresh.client.describe()
    created_off_ms = summary.service_time_ms - summary.created_ms
    recreated = _fill(fresh)
    of_deleted = _answer(fresh, fresh.open_shards()[0].id, stored[-1].sequence_number)
    return Observed(
        [one.sequence_number for one in stored],
        None if at is None else at.sequence_number,
        None if after is None else after.sequence_number,
        older,
        of_deleted,
        [one.sequence_number for one in recreated],
        created_off_ms,
    )


def _fill(reader: BenchStream) -> list[Stored]:
    shard = reader.open_shards()[0]
    for n in range(RECORDS):
        reader.put(shard, b"position-%d" % n)
    return reader.read(shard.id, RECORDS)


def _answer(reader: BenchStream, shard_id: str, sequence_number: str) -> str:
    try:
        first = reader.first(shard_id, AfterRecord(sequence_number), inclusive=True)
    except (PositionNotFoundError, ShardNotFoundError):
        return UNKNOWN
    except SparkinesisError as error:
        return f"another error: {type(error).__name__}"
    return NOTHING if first is None else first.sequence_number


def answers(seen: Observed) -> dict[str, Answer]:
    def named(answer: str, oldest: str) -> str:
        if answer == oldest:
            return OLDEST
        return "another record" if answer.isdigit() else answer

    by_number = {number: n for n, number in enumerate(seen.stored)}
    words = {1: ITSELF, 2: NEXT}

    def place(number: str | None) -> str:
        if number is None:
            return NOTHING
        return words.get(by_number.get(number, -1), "another record")

    return {
        "position.at": Answer(place(seen.at_second)),
        "position.after": Answer(place(seen.after_second)),
        "position.older": Answer(named(seen.older, seen.stored[0]), "an invented number"),
        "position.of_deleted": Answer(named(seen.of_deleted, seen.recreated[0])),
        "position.created_off_ms": Answer(
            abs(seen.created_off_ms), "includes the time until the stream was ACTIVE"
        ),
        "position.trimmed": Answer(
            None,
            "no stream keeps records for less than 24 hours; position.older and "
            "position.of_deleted are the nearest cases",
        ),
    }
