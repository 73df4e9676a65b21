"""What goes into a PutRecords call: within its limits, in the order of each lane, nothing lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.stream.put_entry import PutEntry
from sparkinesis.stream.putting import MAX_CALL_SIZE, PutQueue

lanes = st.one_of(st.none(), st.sampled_from("abc"))
DATA = {size: bytes(size) for size in (0, 1, 1000, 1 << 20, 3 << 20, 6 << 20)}
sizes = st.sampled_from(list(DATA))


def entry(number: int, lane: str | None, size: int = 0) -> PutEntry:
    return PutEntry(f"{number}", None, DATA[size], (), lane)


@settings(deadline=None)
@given(
    st.lists(st.tuples(lanes, sizes), max_size=60),
    st.integers(0, 700),
    st.randoms(use_true_random=True),
)
def test_every_entry_goes_out_until_accepted_within_limits_and_in_order(rows, small, rng) -> None:  # type: ignore[no-untyped-def]
    entries = [entry(n, lane, size) for n, (lane, size) in enumerate(rows)]
    entries += [entry(len(rows) + n, None) for n in range(small)]
    queue = PutQueue()
    queue.add(entries)
    taken: list[list[PutEntry]] = []
    stored: list[PutEntry] = []
    now = 0.0
    while queue or taken:
        call = queue.take(now)
        if call:
            assert len(call) <= 500
            assert len(call) == 1 or sum(e.size for e in call) <= MAX_CALL_SIZE
            taken.append(call)
            under_way = [e.lane for calls in taken for e in calls if e.lane is not None]
            assert len(under_way) == len(set(under_way))
        if taken and (not call or rng.random() < 0.5):
            answered = taken.pop(rng.randrange(len(taken)))
            refused = []
            for e in answered:
                if rng.random() < 0.3:
                    refused.append(e)
                else:
                    stored.append(e)
                    queue.accepted(e)
            if refused:
                queue.refused(refused, now, lambda _: 1.0)
        elif not call:
            now = queue.next_due() or now
    assert sorted(map(id, stored)) == sorted(map(id, entries))
    assert queue.size == 0
    for lane in "abc":
        assert [e for e in stored if e.lane == lane] == [e for e in entries if e.lane == lane]


def test_refused_entries_wait_for_the_pause_of_the_least_refused_of_them_then_go_first() -> None:
    queue = PutQueue()
    unlucky, fresh, other = entry(1, None), entry(2, None), entry(3, None)
    unlucky.attempts = 5
    queue.add([unlucky, fresh])
    queue.refused(queue.take(0.0), 10.0, lambda attempt: [2.0, 100.0][attempt])
    queue.add([other])
    assert queue.next_due() == 12.0
    assert [unlucky.attempts, fresh.attempts] == [6, 1]
    assert len(queue) == 3
    queue_now = queue.take(12.0)
    assert queue_now == [unlucky, fresh, other]


def test_until_the_pause_is_over_only_others_go() -> None:
    queue = PutQueue()
    queue.add([entry(1, "a"), entry(2, "a"), entry(3, None)])
    first = queue.take(0.0)
    assert [e.partition_key for e in first] == ["1", "3"]
    queue.accepted(first[1])
    queue.refused(first[:1], 0.0, lambda _: 1.0)
    assert queue.take(0.9) == []
    assert queue.take(1.0) == first[:1]
    assert queue.take(2.0) == []


def test_what_is_taken_out_for_packing_anew_is_in_the_order_of_its_lane() -> None:
    queue = PutQueue()
    queue.add([entry(1, "a"), entry(2, "a"), entry(3, "b"), entry(4, "a"), entry(5, "b")])
    queue.refused(queue.take(0.0), 0.0, lambda _: 1.0)
    found = [(e.lane, e.partition_key) for e in queue.take_all()]
    assert [key for lane, key in found if lane == "a"] == ["1", "2", "4"]
    assert [key for lane, key in found if lane == "b"] == ["3", "5"]
    assert not queue
    assert queue.size == 0
    assert queue.next_due() is None
