"""The tip of a shard: when a record is visible, and what pages there say.

A batch ends at the instant at which a page at the tip was asked for: all that arrived by then must
be in that page or in earlier ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.source.planning.stream_plan import SHORT_OF_TIP_MS
from sparkinesis.stream.position import LATEST, TRIM_HORIZON
from sparkinesis.stream.shard import Shard
from tests.aws.bench import Bench, BenchStream
from tests.aws.findings import Answer, Question, all_of
from tests.repeating import repeating

_PLANNER = "src/sparkinesis/source/planning/stream_plan.py"
_RETENTION = "src/sparkinesis/stream/reading/retention.py"
_PAGE = "src/sparkinesis/stream/page.py"

MOST_EMPTY_PAGES = 5
"""_MOST_EMPTY_PAGES of the retention check."""

QUESTIONS = (
    Question(
        "tip.delay_ms",
        "After how long is a record visible? (median)",
        "no bound: a late record is in a later batch",
        ("docs/benchmarks.md",),
        unit="ms",
    ),
    Question(
        "tip.longest_delay_ms",
        "After how long is a record visible? (longest)",
        "no bound",
        ("docs/benchmarks.md",),
        unit="ms",
    ),
    Question(
        "tip.late_ms",
        "By how much may a record arrive before a page at the tip was asked for, and be missing in "
        "that page?",
        "0 ms: a batch ends at the instant of that call",
        (_PLANNER, "docs/time.md"),
        unit="ms",
        most=0,
    ),
    Question(
        "tip.late_behind_ms",
        "The same, for pages that are not at the tip",
        f"at most {SHORT_OF_TIP_MS} ms (SHORT_OF_TIP_MS)",
        (_PLANNER,),
        unit="ms",
        most=SHORT_OF_TIP_MS,
    ),
    Question(
        "tip.empty_is_at_tip",
        "Does an empty page after the last record say MillisBehindLatest 0?",
        "yes: it shows that the reader is at the tip",
        (_PAGE, _PLANNER, _RETENTION),
        frozenset({True}),
    ),
    Question(
        "tip.goes_on",
        "Does an empty page of an open shard have a NextShardIterator?",
        "yes: a page without one is the end of the shard",
        (_PAGE, "src/sparkinesis/stream/reading/shard_end.py"),
        frozenset({True}),
    ),
    Question(
        "tip.behind_says_so",
        "Does a page with records before the last one say MillisBehindLatest above 0?",
        "yes: otherwise a reader would take itself to be at the tip",
        (_PAGE, _PLANNER, _RETENTION),
        frozenset({True}),
    ),
    Question(
        "tip.empty_pages",
        "How many empty pages precede the first record of a read from TRIM_HORIZON?",
        f"at most {MOST_EMPTY_PAGES} where one look must do; else any number",
        (_RETENTION,),
        unit="pages",
        most=MOST_EMPTY_PAGES,
    ),
    Question(
        "tip.empty_pages_say_behind",
        "Do those empty pages say MillisBehindLatest above 0?",
        "yes: otherwise a shard with records would seem empty",
        (_PAGE, _RETENTION, _PLANNER),
        frozenset({True, "no empty page"}),
    ),
)

SINGLES = 8
BUSY_SECONDS = 10.0
_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """A page: when it was asked for by the service's clock, and what it held; times in ms."""

    asked_ms: int
    behind_ms: int | None
    arrivals: Sequence[int]
    goes_on: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    delays_ms: Sequence[float]
    busy: Sequence[Seen]
    """Successive pages while records arrive, and after the last one."""
    after_last: Sequence[Seen]
    from_oldest: Sequence[Seen]
    """Pages of one record each, from the oldest record on; the last record is not among them."""


def measure(bench: Bench, stream: str, busy_seconds: float = BUSY_SECONDS) -> Observed:
    reader = bench.stream(stream)
    shard = reader.open_shards()[0]
    delays = [_delay(bench, reader, shard) for _ in range(SINGLES)]
    bench.note(f"{len(delays)} single records became visible")
    busy = _busy(bench, reader, shard, busy_seconds)
    bench.note(f"{len(busy)} pages read while records arrived")
    pages: list[Seen] = []
    iterator: str | None = reader.iterator(shard.id, TRIM_HORIZON)
    while iterator is not None and sum(len(page.arrivals) for page in pages) < 3:
        seen, iterator = _page(reader, shard, iterator, limit=1)
        pages.append(seen)
    return Observed(delays, busy, busy[-2:], pages)


def _page(
    reader: BenchStream, shard: Shard, iterator: str, limit: int = 10_000
) -> tuple[Seen, str | None]:
    fetched = reader.page(shard.id, iterator, limit)
    page = fetched.page
    arrivals = [record.arrived_ms or 0 for record in page.records]
    following = page.next_shard_iterator
    seen = Seen(fetched.asked_ms, page.millis_behind_latest, arrivals, following is not None)
    return seen, following


def _delay(bench: Bench, reader: BenchStream, shard: Shard) -> float:
    """Return the ms from the answer of a put until the answer that holds the record."""
    iterator: str | None = reader.iterator(shard.id, LATEST)
    reader.put(shard, b"single")
    stored = bench.limit.spent
    while iterator is not None:
        seen, iterator = _page(reader, shard, iterator)
        if seen.arrivals:
            break
    return (bench.limit.spent - stored) * 1000


def _busy(bench: Bench, reader: BenchStream, shard: Shard, seconds: float) -> list[Seen]:
    """Read at the tip while records arrive, until three pages after the last one are empty."""
    pages: list[Seen] = []
    iterator: str | None = reader.iterator(shard.id, LATEST)
    with repeating(lambda: reader.put(shard, b"busy"), _EVERY):
        until = bench.limit.spent + seconds
        while iterator is not None and bench.limit.spent < until:
            seen, iterator = _page(reader, shard, iterator)
            pages.append(seen)
    empty = 0
    while iterator is not None and empty < 3:
        seen, iterator = _page(reader, shard, iterator)
        pages.append(seen)
        empty = 0 if seen.arrivals else empty + 1
    return pages


def lateness_ms(pages: Sequence[Seen], *, at_tip: bool) -> int | None:
    """Return by how much a record of a later page arrived before a page was asked for, at most.

    ``at_tip``: only pages with MillisBehindLatest 0 are judged; else only the others. None if
    there is no such page, negative or 0 if no record came late.
    """
    worst: int | None = None
    earliest: int | None = None
    for page in reversed(pages):
        if (page.behind_ms == 0) == at_tip:
            late = 0 if earliest is None else max(0, page.asked_ms - earliest)
            worst = late if worst is None else max(worst, late)
        if page.arrivals:
            least = min(page.arrivals)
            earliest = least if earliest is None else min(earliest, least)
    return worst


def answers(seen: Observed) -> dict[str, Answer]:
    delays = [round(ms) for ms in seen.delays_ms]
    count = f"{len(delays)} records; includes the calls' own time"
    empty = [page for page in seen.after_last if not page.arrivals]
    first = next((n for n, page in enumerate(seen.from_oldest) if page.arrivals), None)
    leading = seen.from_oldest[:first]
    tips = sum(page.behind_ms == 0 for page in seen.busy)
    clock = "by the service's clock, whose milliseconds are this machine's"
    found = {
        "tip.delay_ms": Answer(round(statistics.median(delays)) if delays else None, count),
        "tip.longest_delay_ms": Answer(max(delays, default=None), count),
        "tip.late_ms": Answer(lateness_ms(seen.busy, at_tip=True), f"{tips} pages; {clock}"),
        "tip.late_behind_ms": Answer(
            lateness_ms(seen.busy, at_tip=False), f"{len(seen.busy) - tips} pages; {clock}"
        ),
        "tip.empty_is_at_tip": all_of([page.behind_ms == 0 for page in empty], "pages"),
        "tip.goes_on": all_of([page.goes_on for page in empty], "pages"),
        "tip.behind_says_so": all_of(
            [(page.behind_ms or 0) > 0 for page in seen.from_oldest if page.arrivals], "pages"
        ),
        "tip.empty_pages": Answer(first, "" if first is not None else "no record was found"),
    }
    if leading:
        found["tip.empty_pages_say_behind"] = all_of(
            [(page.behind_ms or 0) > 0 for page in leading], "pages"
        )
    else:
        found["tip.empty_pages_say_behind"] = Answer("no empty page")
    return found
