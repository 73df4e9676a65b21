"""A page in two parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.page import ChildShard, Fetched, HashKeyRange, Page, Record, split_page

NOW_MS = 1_790_000_000_000
CHILDREN = [ChildShard("shardId-000000000001", ["shardId-000000000000"], HashKeyRange("0", "9"))]


def page(count: int, behind: int | None, arrival: float | None) -> Fetched:
    records = [
        Record(
            data=b"x" * n,
            partition_key="key",
            sequence_number=str(n),
            approximate_arrival_timestamp=arrival,
        )
        for n in range(count)
    ]
    return Fetched(Page(records, None, behind, CHILDREN), 100_000, NOW_MS)


@given(
    count=st.integers(2, 20),
    at=st.integers(1, 19),
    behind=st.none() | st.sampled_from((0, 5, 10**9)),
    age=st.none() | st.sampled_from((-3.0, 0.0, 9.5)),
)
def test_the_parts_are_the_page_and_only_the_second_reaches_its_end(
    count: int, at: int, behind: int | None, age: float | None
) -> None:
    at = min(at, count - 1)
    whole = page(count, behind, None if age is None else NOW_MS / 1000 - age)
    head, tail = split_page(whole, at)
    assert [*head.page.records, *tail.page.records] == whole.page.records
    assert len(head.page.records) == at
    assert head.size + tail.size == whole.size
    assert {head.service_time_ms, tail.service_time_ms} == {NOW_MS}
    assert (tail.page.child_shards, tail.page.millis_behind_latest) == (CHILDREN, behind)
    assert head.page.child_shards is None
    told = head.page.millis_behind_latest
    if behind is None:
        assert told is None
    else:
        assert told is not None
        assert told >= max(1, behind), "it is not at the tip: more follows"
        if age == 9.5:
            assert told >= 9_500, "as long ago as what follows came"


def test_a_record_without_a_partition_key_can_be_divided_off() -> None:
    records = [
        Record(data=b"abc", partition_key=None, sequence_number=str(number)) for number in range(2)
    ]
    head, _ = split_page(Fetched(Page(records, "next", 0), 6, NOW_MS), 1)
    assert head.size == 3
