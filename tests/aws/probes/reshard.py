"""A split and a merge: the end of a shard, its children, and when ListShards shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from sparkinesis.stream.page import Page, shard_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.shard import Shard
from tests.aws.answer import Answer
from tests.aws.bench import Bench, BenchStream

_CHILDREN = "src/sparkinesis/lease/rules/children.py"
_ENDS = "src/sparkinesis/lease/shards/shard_ends.py"
_PLANNER = "src/sparkinesis/source/planning/stream_plan.py"
_PAGE = "src/sparkinesis/stream/page.py"
_CONSUMER = "src/sparkinesis/worker/lifecycle/shard/consumer.py"

WITH_RECORDS, EMPTY, NO_END = "a page with records", "an empty page", "no end"
LAST_ONLY, EARLIER, NEVER = "on the last page only", "on an earlier page too", "on no page"

LISTED_MS = 60_000
"""A worker warns after a minute in which ListShards does not show the end of a shard."""

RECORDS = 6
_POLL = 0.25
_MOST_PAGES = 60


def probe(bench: Bench, stream: BenchStream) -> Iterator[Answer]:
    parent = stream.open_shards()[0]
    stream.put(parent, *(b"parent-%d" % n for n in range(RECORDS)))
    low, high = parent.hash_range or (0, 0)
    kinesis = bench.client("kinesis")
    kinesis.split_shard(
        StreamName=stream.name,
        ShardToSplit=parent.id,
        NewStartingHashKey=str((low + high) // 2 + 1),
    )
    children, listed_ms, active_ms = _await_split(bench, stream, parent)
    for n in range(2 * RECORDS):
        stream.put_each([(child, b"child-%d" % n) for child in children])
    first = [stream.first(child.id, TRIM_HORIZON) for child in children]
    pages = _read_to_end(stream, parent.id)
    listed_end = next((s for s in stream.list_shards()[0] if s.id == parent.id), None)
    last = pages[-1].next_shard_iterator is None
    arrivals = [one.arrived_ms or 0 for page in pages for one in page.records]
    child_arrivals = [one.arrived_ms for one in first if one is not None]
    after = [one.sequence_number for page in pages for one in page.records][-1]
    again = _read_to_end(stream, parent.id, after)
    one, other = sorted(children, key=lambda child: child.hash_range or (0, 0))
    bench.check()
    kinesis.merge_shards(StreamName=stream.name, ShardToMerge=one.id, AdjacentShardToMerge=other.id)
    bench.wait("stream_exists", stream.name)
    merged = [_read_to_end(stream, shard.id)[-1] for shard in (one, other)]
    yield Answer(
        "reshard.last_page",
        "With what does a closed shard end that has unread records?",
        (WITH_RECORDS if pages[-1].records else EMPTY) if last else NO_END,
        {WITH_RECORDS, EMPTY},
        "either: a page without NextShardIterator may have records, or be an empty one after them",
        (_PLANNER, _CONSUMER, "src/sparkinesis/stream/reading/shard_cursor.py"),
        f"{len(pages)} pages",
    )
    yield Answer(
        "reshard.child_shards",
        "On which page of a closed shard are ChildShards?",
        where_children_are(pages) if last else NO_END,
        {LAST_ONLY},
        "on the last page only; a shard that names none costs a ListShards call",
        (_PAGE, _ENDS, _PLANNER),
    )
    named = [shard_of(child) for child in pages[-1].child_shards or ()]
    yield Answer(
        "reshard.children_complete",
        "Does a split shard name both children, with the parents and hash keys of ListShards?",
        len(named) == 2 and set(map(_identity, named)) == set(map(_identity, children)),
        {True},
        "yes: leases of the children are made of them",
        (_CHILDREN, _ENDS),
    )
    parents = {one.id, other.id}
    yield Answer(
        "reshard.merged_child",
        "Do both shards of a merge name the child, with both parents?",
        all(
            [set(c.parent_shards) for c in page.child_shards or ()] == [parents] for page in merged
        ),
        {True},
        "yes: the child is not read before both have ended",
        (_CHILDREN, _ENDS, _PLANNER),
    )
    yield Answer(
        "reshard.ends_again",
        "Does a read after the last record of a closed shard end with ChildShards?",
        again[-1].next_shard_iterator is None and bool(again[-1].child_shards),
        {True},
        "yes: a reader that resumes there learns of the children",
        (_CONSUMER, _PLANNER),
    )
    yield Answer(
        "reshard.end_is_listed",
        "Does ListShards show the shard's end as soon as its last page was read?",
        listed_end is not None and not listed_end.is_open,
        {True, False},
        "either: a worker asks again, after 1, 2, 4, ... seconds",
        (_ENDS, "docs/other-servers.md"),
    )
    yield Answer(
        "reshard.listed_ms",
        "How long after SplitShard's answer does ListShards show the children?",
        listed_ms,
        range(LISTED_MS + 1),
        f"at most {LISTED_MS:,} ms; a worker warns after that time",
        (_ENDS, _PLANNER),
        f"asked every {_POLL:g} seconds",
        "ms",
    )
    yield Answer(
        "reshard.active_ms",
        "How long after SplitShard's answer is the stream ACTIVE again?",
        active_ms,
        None,
        "no bound",
        (_ENDS,),
        f"asked every {_POLL:g} seconds",
        "ms",
    )
    yield Answer(
        "reshard.child_after_parent_ms",
        "How long after the parent's last record does a child's first one arrive, at least?",
        min(child_arrivals) - max(arrivals) if child_arrivals else None,
        range(10**9),
        "0 ms or more: a batch in which a shard ends holds nothing that arrived later",
        (_PLANNER, "docs/time.md"),
        unit="ms",
    )


def _await_split(bench: Bench, stream: BenchStream, parent: Shard) -> tuple[list[Shard], int, int]:
    """Return the children, and after how many ms they were listed and the stream was ACTIVE.

    Until the split takes place, records go on to the parent: some are in its last second.
    """
    began = time.monotonic()
    listed_ms: int | None = None
    while True:
        stream.put(parent, b"during")
        children = [one for one in stream.list_shards()[0] if parent.id in one.parents]
        took = round((time.monotonic() - began) * 1000)
        if len(children) == 2 and listed_ms is None:
            listed_ms = took
        # Right after the call, the stream may still be shown as ACTIVE.
        if listed_ms is not None and stream.is_active():
            return children, listed_ms, took
        bench.sleep(_POLL)


def _identity(shard: Shard) -> tuple[str, tuple[str, ...], tuple[int, int] | None]:
    return shard.id, tuple(sorted(shard.parents)), shard.hash_range


def _read_to_end(stream: BenchStream, shard_id: str, after: str | None = None) -> list[Page]:
    """Return the pages of a closed shard; the last one has an iterator if the end did not come."""
    position = TRIM_HORIZON if after is None else AfterRecord(after)
    iterator: str | None = stream.iterator(shard_id, position)
    pages: list[Page] = []
    while iterator is not None and len(pages) < _MOST_PAGES:
        pages.append(stream.page(shard_id, iterator).page)
        iterator = pages[-1].next_shard_iterator
    return pages


def where_children_are(pages: Sequence[Page]) -> str:
    *earlier, last = [bool(page.child_shards) for page in pages]
    return EARLIER if any(earlier) else LAST_ONLY if last else NEVER
