"""A split and a merge: the end of a shard, its children, and when ListShards shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkinesis.stream.page import Page, shard_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.shard import Shard
from tests.aws.bench import Bench, BenchStream
from tests.aws.findings import Answer, Question
from tests.aws.spending import Use

_CHILDREN = "src/sparkinesis/lease/rules/children.py"
_ENDS = "src/sparkinesis/lease/shards/shard_ends.py"
_PLANNER = "src/sparkinesis/source/planning/stream_plan.py"
_PAGE = "src/sparkinesis/stream/page.py"
_CONSUMER = "src/sparkinesis/worker/lifecycle/shard/consumer.py"

WITH_RECORDS, EMPTY = "a page with records", "an empty page"
LAST_ONLY, EARLIER, NEVER = "on the last page only", "on an earlier page too", "on no page"

LISTED_MS = 60_000
"""A worker warns after a minute in which ListShards does not show the end of a shard."""

QUESTIONS = (
    Question(
        "reshard.last_page",
        "With what does a closed shard end that has unread records?",
        "either: a page without NextShardIterator may have records, or be an empty one after them",
        (_PLANNER, _CONSUMER, "src/sparkinesis/stream/reading/shard_cursor.py"),
        frozenset({WITH_RECORDS, EMPTY}),
    ),
    Question(
        "reshard.child_shards",
        "On which page of a closed shard are ChildShards?",
        "on the last page only; a shard that names none costs a ListShards call",
        (_PAGE, _ENDS, _PLANNER),
        frozenset({LAST_ONLY}),
    ),
    Question(
        "reshard.children_complete",
        "Does a split shard name both children, with the parents and hash keys of ListShards?",
        "yes: leases of the children are made of them",
        (_CHILDREN, _ENDS),
        frozenset({True}),
    ),
    Question(
        "reshard.merged_child",
        "Do both shards of a merge name the child, with both parents?",
        "yes: the child is not read before both have ended",
        (_CHILDREN, _ENDS, _PLANNER),
        frozenset({True}),
    ),
    Question(
        "reshard.ends_again",
        "Does a read after the last record of a closed shard end with ChildShards?",
        "yes: a reader that resumes there learns of the children",
        (_CONSUMER, _PLANNER),
        frozenset({True}),
    ),
    Question(
        "reshard.end_is_listed",
        "Does ListShards show the shard's end as soon as its last page was read?",
        "either: a worker asks again, after 1, 2, 4, ... seconds",
        (_ENDS, "docs/other-servers.md"),
        frozenset({True, False}),
    ),
    Question(
        "reshard.listed_ms",
        "How long after SplitShard's answer does ListShards show the children?",
        f"at most {LISTED_MS:,} ms; a worker warns after that time",
        (_ENDS, _PLANNER),
        unit="ms",
        most=LISTED_MS,
    ),
    Question(
        "reshard.active_ms",
        "How long after SplitShard's answer is the stream ACTIVE again?",
        "no bound",
        (_ENDS,),
        unit="ms",
    ),
    Question(
        "reshard.child_after_parent_ms",
        "How long after the parent's last record does a child's first one arrive, at least?",
        "0 ms or more: a batch in which a shard ends holds nothing that arrived later",
        (_PLANNER, "docs/time.md"),
        unit="ms",
        least=0,
    ),
)

RECORDS = 6
_POLL = 0.25


@dataclass(frozen=True, slots=True)
class End:
    """The pages of a closed shard, up to its end; a page is its record count and children."""

    counts: Sequence[int]
    children: Sequence[Mapping[str, tuple[str, ...]]]
    """On each page: the parents of each child by its id."""
    has_ended: bool
    last_arrival_ms: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    end: End
    """Of the shard that was split, read from its oldest record."""
    again: End
    """The same shard, read after its last record."""
    split_children: frozenset[tuple[str, tuple[str, ...], tuple[int, int] | None]]
    """Id, parents and hash keys of the children that the split shard named."""
    listed_children: frozenset[tuple[str, tuple[str, ...], tuple[int, int] | None]]
    was_end_listed: bool
    listed_ms: int
    active_ms: int
    first_child_arrival_ms: int | None
    merged: Sequence[Mapping[str, tuple[str, ...]]]
    """What each of the two merged shards named."""
    merge_parents: tuple[str, ...]


def measure(bench: Bench, stream: str) -> Observed:
    reader = bench.stream(stream)
    parent = reader.open_shards()[0]
    reader.put(parent, *(b"parent-%d" % n for n in range(RECORDS)))
    low, high = parent.hash_range or (0, 0)
    bench.allowance.take(Use(shards=2))
    kinesis = bench.target.client("kinesis")
    kinesis.split_shard(
        StreamName=stream, ShardToSplit=parent.id, NewStartingHashKey=str((low + high) // 2 + 1)
    )
    split_at = bench.limit.spent
    # Until the split takes place, records go on to the parent: some are in its last second.
    children: list[Shard] = []
    listed_ms: int | None = None
    active_ms: int | None = None
    n = 0
    while listed_ms is None or active_ms is None:
        reader.put(parent, b"during-%d" % n)
        n += 1
        shards, _ = reader.list_shards()
        children = [shard for shard in shards if parent.id in shard.parents]
        took = round((bench.limit.spent - split_at) * 1000)
        if len(children) == 2 and listed_ms is None:
            listed_ms = took
        # Right after the call, the stream may still be shown as ACTIVE.
        if listed_ms is not None and bench.resources.is_active(stream):
            active_ms = took
        bench.limit.sleep(_POLL)
    bench.note(f"shard split; listed after {listed_ms:,} ms")
    for n in range(2 * RECORDS):
        reader.put_each([(child, b"child-%d" % n) for child in children])
    first = [reader.first(child.id, TRIM_HORIZON) for child in children]
    end, named, last = _read_to_end(reader, parent.id, None)
    shards, _ = reader.list_shards()
    listed_end = next((s for s in shards if s.id == parent.id), None)
    again, _, _ = _read_to_end(reader, parent.id, last)
    arrivals = [one.arrived_ms for one in first if one is not None]

    one, other = sorted(children, key=lambda child: child.hash_range or (0, 0))
    bench.allowance.take(Use(shards=1))
    bench.limit.check()
    kinesis.merge_shards(StreamName=stream, ShardToMerge=one.id, AdjacentShardToMerge=other.id)
    bench.resources.wait_until_active(stream)
    merged = [_read_to_end(reader, shard.id, None)[0] for shard in (one, other)]
    bench.note("both children merged and read to their ends")
    return Observed(
        end,
        again,
        frozenset(map(_identity, named)),
        frozenset(map(_identity, children)),
        listed_end is not None and not listed_end.is_open,
        listed_ms,
        active_ms,
        min(arrivals, default=None),
        [pages.children[-1] if pages.children else {} for pages in merged],
        tuple(sorted((one.id, other.id))),
    )


def _identity(shard: Shard) -> tuple[str, tuple[str, ...], tuple[int, int] | None]:
    return shard.id, tuple(sorted(shard.parents)), shard.hash_range


def _read_to_end(
    reader: BenchStream, shard_id: str, after: str | None, most_pages: int = 60
) -> tuple[End, list[Shard], str | None]:
    """Read a closed shard to its end; also return the children it named and its last record."""
    position = TRIM_HORIZON if after is None else AfterRecord(after)
    iterator: str | None = reader.iterator(shard_id, position)
    pages: list[Page] = []
    while iterator is not None and len(pages) < most_pages:
        pages.append(reader.page(shard_id, iterator).page)
        iterator = pages[-1].next_shard_iterator
    records = [record for page in pages for record in page.records]
    named = [shard_of(child) for child in pages[-1].child_shards or ()]
    arrivals = [record.arrived_ms for record in records if record.arrived_ms is not None]
    end = End(
        [len(page.records) for page in pages],
        [
            {
                child.shard_id: tuple(sorted(child.parent_shards))
                for child in page.child_shards or ()
            }
            for page in pages
        ],
        iterator is None,
        max(arrivals, default=None),
    )
    return end, named, records[-1].sequence_number if records else after


def answers(seen: Observed) -> dict[str, Answer]:
    counts = seen.end.counts
    if not seen.end.has_ended:
        last = child_shards = Answer(
            "no end", f"{len(counts)} pages, all of them with a NextShardIterator"
        )
    else:
        last = Answer(WITH_RECORDS if counts[-1] else EMPTY, f"{len(counts)} pages")
        child_shards = Answer(_where([bool(named) for named in seen.end.children]))
    gap = None
    if seen.first_child_arrival_ms is not None and seen.end.last_arrival_ms is not None:
        gap = seen.first_child_arrival_ms - seen.end.last_arrival_ms
    is_merged = len(seen.merged) == 2 and all(
        len(named) == 1 and set(named.values()) == {seen.merge_parents} for named in seen.merged
    )
    return {
        "reshard.last_page": last,
        "reshard.child_shards": child_shards,
        "reshard.children_complete": Answer(
            len(seen.split_children) == 2 and seen.split_children == seen.listed_children
        ),
        "reshard.merged_child": Answer(is_merged),
        "reshard.ends_again": Answer(
            seen.again.has_ended and bool(seen.again.children and seen.again.children[-1])
        ),
        "reshard.end_is_listed": Answer(seen.was_end_listed),
        "reshard.listed_ms": Answer(seen.listed_ms, f"asked every {_POLL:g} seconds"),
        "reshard.active_ms": Answer(seen.active_ms, f"asked every {_POLL:g} seconds"),
        "reshard.child_after_parent_ms": Answer(
            gap, "" if gap is not None else "no record in a child"
        ),
    }


def _where(pages: Sequence[bool]) -> str:
    if not any(pages):
        return NEVER
    return EARLIER if any(pages[:-1]) else LAST_ONLY
