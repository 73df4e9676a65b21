"""The tip of a shard: when a record is visible, and what pages there say.

A batch ends at the instant at which a page at the tip was asked for: all that arrived by then must
be in that page or in earlier ones.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkinesis.source.planning.stream_plan import SHORT_OF_TIP_MS
from sparkinesis.stream.position import LATEST, TRIM_HORIZON
from sparkinesis.stream.shard import Shard
from tests.aws.answer import Answer, all_of
from tests.aws.bench import Bench, BenchStream
from tests.repeating import repeating

_PLANNER = "src/sparkinesis/source/planning/stream_plan.py"
_RETENTION = "src/sparkinesis/stream/reading/retention.py"
_PAGE = "src/sparkinesis/stream/page.py"

MOST_EMPTY_PAGES = 5
"""_MOST_EMPTY_PAGES of the retention check."""

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


def probe(
    bench: Bench, stream: BenchStream, busy_seconds: float = BUSY_SECONDS
) -> Iterator[Answer]:
    shard = stream.open_shards()[0]
    delays = [round(_delay(stream, shard)) for _ in range(SINGLES)]
    bench.note(f"{len(delays)} single records became visible")
    busy = _busy(stream, shard, busy_seconds)
    bench.note(f"{len(busy)} pages read while records arrived")
    from_oldest: list[Seen] = []  # of one record each; the last record is not among them
    iterator: str | None = stream.iterator(shard.id, TRIM_HORIZON)
    while iterator is not None and sum(len(page.arrivals) for page in from_oldest) < 3:
        seen, iterator = _page(stream, shard, iterator, limit=1)
        from_oldest.append(seen)
    empty = [page for page in busy[-2:] if not page.arrivals]
    leading = list(itertools.takewhile(lambda page: not page.arrivals, from_oldest))
    tips = sum(page.behind_ms == 0 for page in busy)
    count = f"{len(delays)} records; includes the calls' own time"
    clock = "by the service's clock, whose milliseconds are this machine's"
    yield Answer(
        "tip.delay_ms",
        "After how long is a record visible? (median)",
        round(statistics.median(delays)),
        None,
        "no bound: a late record is in a later batch",
        ("docs/benchmarks.md",),
        count,
        "ms",
    )
    yield Answer(
        "tip.longest_delay_ms",
        "After how long is a record visible? (longest)",
        max(delays),
        None,
        "no bound",
        ("docs/benchmarks.md",),
        count,
        "ms",
    )
    yield Answer(
        "tip.late_ms",
        "By how much may a record arrive before a page at the tip was asked for, and be missing in "
        "that page?",
        lateness_ms(busy, at_tip=True),
        {0},
        "0 ms: a batch ends at the instant of that call",
        (_PLANNER, "docs/time.md"),
        f"{tips} pages; {clock}",
        "ms",
    )
    yield Answer(
        "tip.late_behind_ms",
        "The same, for pages that are not at the tip",
        lateness_ms(busy, at_tip=False),
        range(SHORT_OF_TIP_MS + 1),
        f"at most {SHORT_OF_TIP_MS} ms (SHORT_OF_TIP_MS)",
        (_PLANNER,),
        f"{len(busy) - tips} pages; {clock}",
        "ms",
    )
    at_tip, note = all_of([page.behind_ms == 0 for page in empty], "pages")
    yield Answer(
        "tip.empty_is_at_tip",
        "Does an empty page after the last record say MillisBehindLatest 0?",
        at_tip,
        {True},
        "yes: it shows that the reader is at the tip",
        (_PAGE, _PLANNER, _RETENTION),
        note,
    )
    goes_on, note = all_of([page.goes_on for page in empty], "pages")
    yield Answer(
        "tip.goes_on",
        "Does an empty page of an open shard have a NextShardIterator?",
        goes_on,
        {True},
        "yes: a page without one is the end of the shard",
        (_PAGE, "src/sparkinesis/stream/reading/shard_end.py"),
        note,
    )
    behind, note = all_of(
        [(page.behind_ms or 0) > 0 for page in from_oldest if page.arrivals], "pages"
    )
    yield Answer(
        "tip.behind_says_so",
        "Does a page with records before the last one say MillisBehindLatest above 0?",
        behind,
        {True},
        "yes: otherwise a reader would take itself to be at the tip",
        (_PAGE, _PLANNER, _RETENTION),
        note,
    )
    yield Answer(
        "tip.empty_pages",
        "How many empty pages precede the first record of a read from TRIM_HORIZON?",
        len(leading),
        range(MOST_EMPTY_PAGES + 1),
        f"at most {MOST_EMPTY_PAGES} where one look must do; else any number",
        (_RETENTION,),
        unit="pages",
    )
    behind, note = all_of([(page.behind_ms or 0) > 0 for page in leading], "pages")
    yield Answer(
        "tip.empty_pages_say_behind",
        "Do those empty pages say MillisBehindLatest above 0?",
        behind if leading else "no empty page",
        {True, "no empty page"},
        "yes: otherwise a shard with records would seem empty",
        (_PAGE, _RETENTION, _PLANNER),
        note,
    )


def _page(
    stream: BenchStream, shard: Shard, iterator: str, limit: int = 10_000
) -> tuple[Seen, str | None]:
    fetched = stream.page(shard.id, iterator, limit)
    page = fetched.page
    arrivals = [record.arrived_ms or 0 for record in page.records]
    following = page.next_shard_iterator
    seen = Seen(fetched.asked_ms, page.millis_behind_latest, arrivals, following is not None)
    return seen, following


def _delay(stream: BenchStream, shard: Shard) -> float:
    """Return the ms from the answer of a put until the answer that holds the record."""
    iterator: str | None = stream.iterator(shard.id, LATEST)
    stream.put(shard, b"single")
    stored = time.monotonic()
    while iterator is not None:
        seen, iterator = _page(stream, shard, iterator)
        if seen.arrivals:
            break
    return (time.monotonic() - stored) * 1000


def _busy(stream: BenchStream, shard: Shard, seconds: float) -> list[Seen]:
    """Read at the tip while records arrive, until three pages after the last one are empty."""
    pages: list[Seen] = []
    iterator: str | None = stream.iterator(shard.id, LATEST)
    with repeating(lambda: stream.put(shard, b"busy"), _EVERY):
        until = time.monotonic() + seconds
        while iterator is not None and time.monotonic() < until:
            seen, iterator = _page(stream, shard, iterator)
            pages.append(seen)
    empty = 0
    while iterator is not None and empty < 3:
        seen, iterator = _page(stream, shard, iterator)
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
