"""Splits and merges: their conditions, and the invariants after them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.local import KinesisError, LocalKinesis, ManualClock
from tests.examples import examples
from tests.unit.local.calls import (
    SHARD_0,
    SHARD_1,
    SHARD_2,
    TOP,
    Stream,
    hash_range,
    sequence_range,
)

steps = st.lists(
    st.tuples(
        st.sampled_from(["split", "merge", "rescale", "put"]),
        st.integers(0, 100),
        st.integers(0, 2500),
    ),
    max_size=14,
)


def act(stream: Stream, clock: ManualClock, step: tuple[str, int, int]) -> None:
    kind, pick, pause = step
    clock.advance(pause)
    found = stream.shards(ShardFilter={"Type": "AT_LATEST"})
    found.sort(key=hash_range)
    at = pick % len(found)
    low, high = hash_range(found[at])
    if kind == "put":
        stream.put(str(pick), ExplicitHashKey=str(pick * (2**128 // 101)))
    elif kind == "rescale":
        stream.rescale(1 + pick % 7)
    elif kind == "split" and high - low > 4:
        stream.split(found[at]["ShardId"], low + 2 + (high - low - 3) * pick // 101)
    elif kind == "merge" and at + 1 < len(found):
        stream.merge(found[at]["ShardId"], found[at + 1]["ShardId"])


@given(steps)
@settings(max_examples=examples(60), deadline=None)
def test_any_history_keeps_the_tiling_and_the_lineage(history: list[tuple[str, int, int]]) -> None:
    clock = ManualClock(1_800_000_000_000)
    kinesis = LocalKinesis(clock=clock, limits=False)
    stream = Stream(kinesis, shards=2)
    instants = [clock()]
    for step in history:
        act(stream, clock, step)
        instants.append(clock())
    shards = {shard["ShardId"]: shard for shard in stream.shards()}
    closed = {id_ for id_, shard in shards.items() if sequence_range(shard)[1] is not None}

    tiles = sorted(hash_range(shard) for id_, shard in shards.items() if id_ not in closed)
    assert tiles[0][0] == 0
    assert tiles[-1][1] == TOP
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(tiles))

    with_children = set()
    for shard in shards.values():
        start, _ = sequence_range(shard)
        for name in ("ParentShardId", "AdjacentParentShardId"):
            if name in shard:
                parent = shards[shard[name]]
                with_children.add(shard[name])
                _, parent_end = sequence_range(parent)
                assert parent_end is not None
                assert parent_end < start
                low, high = hash_range(parent)
                assert low <= hash_range(shard)[1]
                assert high >= hash_range(shard)[0]
    assert with_children == closed

    # Whoever begins at the horizon and follows ChildShards sees every shard.
    seen: set[str] = set()
    ready = [s["ShardId"] for s in stream.shards(ShardFilter={"Type": "AT_TRIM_HORIZON"})]
    while ready:
        shard_id = ready.pop()
        seen.add(shard_id)
        page = stream.get(stream.iterator(shard=shard_id))
        children = page.get("ChildShards", [])
        ready += [c["ShardId"] for c in children if set(c["ParentShards"]) <= seen]
    assert seen == set(shards)


@given(st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=examples(40), deadline=None)
def test_update_shard_count_ends_with_equal_shards(before: int, after: int) -> None:
    kinesis = LocalKinesis(clock=ManualClock(), limits=False)
    scaled = Stream(kinesis, shards=before, name="scaled")
    scaled.rescale(after)
    created = Stream(kinesis, shards=after, name="created")
    open_now = scaled.shards(ShardFilter={"Type": "AT_LATEST"})
    assert sorted(map(hash_range, open_now)) == sorted(map(hash_range, created.shards()))


def test_update_shard_count_closes_no_shard_that_can_stay(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=4)
    stream.rescale(5)
    # Four splits (8 more), three merges: as the service does it (15 in all).
    assert len(stream.shards()) == 15


@pytest.mark.parametrize("at", [0, 1, TOP, TOP + 1])
def test_split_needs_a_hash_key_well_inside_the_shard(stream: Stream, at: int) -> None:
    with pytest.raises(KinesisError, match=r"InvalidArgument.*not both greater than one plus"):
        stream.split(at=at)
    stream.split(at=2)


def test_merge_needs_neighbours(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=3)
    with pytest.raises(KinesisError, match=r"InvalidArgument.*not an adjacent pair"):
        stream.merge(SHARD_0, SHARD_2)
    stream.merge(SHARD_1, SHARD_0)
    child = stream.shards()[-1]
    assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (SHARD_1, SHARD_0)
    assert hash_range(child)[0] == 0


def test_a_shard_that_is_closed_or_not_there_is_not_resharded(stream: Stream) -> None:
    stream.split()
    with pytest.raises(KinesisError, match=r"InvalidArgument.*already been merged or split"):
        stream.split()
    with pytest.raises(KinesisError, match=r"ResourceNotFound.*Could not find shard"):
        stream.split("shardId-000000000009")
