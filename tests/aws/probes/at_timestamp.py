"""Where a read from an instant begins: to the millisecond or to the second, and inclusive or not.

Every batch of a query ends at an instant, which the planner finds by AT_TIMESTAMP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.position import AtTimestamp
from tests.aws.bench import Bench, Stored
from tests.aws.findings import Answer, Question, all_of

_PLANNING = "src/sparkinesis/source/planning/probing/end_in_shard.py"
_EARLY = "src/sparkinesis/stream/reading/early_records.py"
_POSITION = "src/sparkinesis/stream/position.py"

MS, SECOND = "to the millisecond", "to the second"
OLDEST = "the oldest record"
REFUSED = "refused"

QUESTIONS = (
    Question(
        "at_timestamp.precision",
        "How exact is AT_TIMESTAMP?",
        "to the millisecond",
        (_PLANNING, _EARLY, _POSITION),
        frozenset({MS}),
    ),
    Question(
        "at_timestamp.inclusive",
        "Does AT_TIMESTAMP return a record that arrived at that very millisecond?",
        "yes: an instant is where a batch ends, and where the next one begins",
        (_PLANNING, _EARLY, _POSITION),
        frozenset({True}),
    ),
    Question(
        "at_timestamp.between",
        "Does an instant between two records return the later one?",
        "yes",
        (_PLANNING, _EARLY),
        frozenset({True}),
    ),
    Question(
        "at_timestamp.before_all",
        "Where does an instant before the stream's creation begin?",
        "at the oldest record",
        (_EARLY, "src/sparkinesis/stream/reading/retention.py"),
        frozenset({OLDEST}),
    ),
    Question(
        "at_timestamp.future",
        "What does an instant an hour ahead answer?",
        "either an error or an iterator without records; no position is ahead of the service's "
        "clock",
        ("src/sparkinesis/stream/calls/explain.py",),
        frozenset({REFUSED, "an iterator without records"}),
    ),
    Question(
        "at_timestamp.arrival_times",
        "How exact are the arrival times of records?",
        "to the millisecond; whole seconds are handled, at more repeated reading",
        ("src/sparkinesis/stream/page.py", _EARLY),
        frozenset({MS, SECOND}),
    ),
)

RECORDS = 16
_SPACING = 0.13


@dataclass(frozen=True, slots=True)
class Look:
    """A read from an instant, and the index of the record with which it began; None: no record."""

    at_ms: int
    first: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    arrivals: Sequence[int]
    """Epoch milliseconds, in the shard's order."""
    looks: Sequence[Look]
    before_all: int | None
    future: str


def measure(bench: Bench, stream: str) -> Observed:
    reader = bench.stream(stream)
    shard = reader.open_shards()[0]
    for n in range(RECORDS):
        reader.put(shard, b"at-%d" % n)
        bench.limit.sleep(_SPACING)
    stored = reader.read(shard.id, RECORDS)
    bench.note(f"{len(stored)} records stored, {_SPACING:g} seconds apart")
    index = {one.sequence_number: n for n, one in enumerate(stored)}

    def look(at_ms: int) -> int | None:
        first: Stored | None = reader.first(shard.id, AtTimestamp(at_ms))
        return None if first is None else index.get(first.sequence_number)

    arrivals = [one.arrived_ms for one in stored]
    instants = sorted({at + by for at in arrivals[2:-2] for by in (-1, 0, 1)})
    looks = [Look(at, look(at)) for at in instants]
    bench.note(f"{len(looks)} instants looked up")
    _, now_ms = reader.list_shards()
    try:
        first = reader.first(shard.id, AtTimestamp(now_ms + 3_600_000), pages=2)
        future = "an iterator without records" if first is None else "records"
    except SparkinesisError:
        future = REFUSED
    return Observed(arrivals, looks, look(arrivals[0] - 86_400_000), future)


def expected(arrivals: Sequence[int], at_ms: int) -> int | None:
    """Return the index of the first record that arrived at ``at_ms`` or later."""
    return next((n for n, arrived in enumerate(arrivals) if arrived >= at_ms), None)


def answers(seen: Observed) -> dict[str, Answer]:
    exact = [expected(seen.arrivals, look.at_ms) == look.first for look in seen.looks]
    to_second = [
        expected(seen.arrivals, look.at_ms // 1000 * 1000) == look.first for look in seen.looks
    ]
    apart = [look for look in seen.looks if _separates(seen.arrivals, look.at_ms)]
    at = [look for look in seen.looks if look.at_ms in seen.arrivals]
    between = [look for look in seen.looks if look.at_ms not in seen.arrivals]
    found: dict[str, Answer] = {}
    if not apart:
        precision = Answer(None, "no two records arrived in one second at different milliseconds")
    elif all(exact):
        precision = Answer(MS, f"{len(exact)} instants")
    elif all(to_second):
        precision = Answer(SECOND, f"{len(exact)} instants")
    else:
        precision = Answer(
            "neither", f"{exact.count(True)} of {len(exact)} instants begin where they should"
        )
    found["at_timestamp.precision"] = precision
    found["at_timestamp.inclusive"] = all_of(
        [look.first is not None and seen.arrivals[look.first] <= look.at_ms for look in at],
        "instants",
    )
    found["at_timestamp.between"] = all_of(
        [look.first == expected(seen.arrivals, look.at_ms) for look in between], "instants"
    )
    found["at_timestamp.before_all"] = Answer(
        OLDEST if seen.before_all == 0 else f"record {seen.before_all}"
    )
    found["at_timestamp.future"] = Answer(seen.future)
    in_seconds = all(arrived % 1000 == 0 for arrived in seen.arrivals)
    found["at_timestamp.arrival_times"] = Answer(SECOND if in_seconds else MS)
    return found


def _separates(arrivals: Sequence[int], at_ms: int) -> bool:
    """Return True if an exact read from ``at_ms`` begins elsewhere than one to the second."""
    return expected(arrivals, at_ms) != expected(arrivals, at_ms // 1000 * 1000)
