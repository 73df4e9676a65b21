"""W1, W2 with ``concurrency``: the order of records by key, and the run to checkpoint."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter, defaultdict
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.lifecycle.shard.open_records import OpenRecord, OpenRecords


def batch_of(keys: list[str | None], first: int) -> RecordBatch:
    records = [
        Record(data=b"x", partition_key=key, sequence_number=str(1000 + first + n))
        for n, key in enumerate(keys)
    ]
    return make_batch(records, stream="s", shard_id="0", millis_behind_latest=0)[0]


@given(
    batches=st.lists(
        st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12), max_size=6
    ),
    most=st.integers(1, 9),
    at_once=st.integers(1, 5),
    seed=st.integers(0, 2**16),
)
def test_each_key_is_in_order_and_the_run_has_no_hole(
    batches: list[list[str | None]], most: int, at_once: int, seed: int
) -> None:
    rng = random.Random(seed)
    open_records = OpenRecords(most)
    left, first, running = list(batches), 0, list[OpenRecord]()
    started: dict[str | None, list[str]] = defaultdict(list)
    finished: set[str] = set()
    run: list[str] = []

    def batches_in_use(run: list[str]) -> int:
        added = batches[: len(batches) - len(left)]
        ends = accumulate(map(len, added))
        return sum(len(run) < end for end in ends)

    while left or open_records or running:
        if left and open_records.has_room:
            open_records.add(batch_of(left[0], first))
            first += len(left.pop(0))
        while len(running) < at_once and (one := open_records.start()) is not None:
            started[one.record.partition_key].append(one.record.sequence_number)
            running.append(one)
        busy = Counter(one.record.partition_key for one in running if one.record.partition_key)
        assert not busy or max(busy.values()) == 1
        assert len(running) <= most
        one = running.pop(rng.randrange(len(running)))
        finished.add(one.record.sequence_number)
        for part in open_records.finish(one):
            run += [record.sequence_number for record in part.records]
        assert finished.issuperset(run)
        assert open_records.batches == batches_in_use(run)
    total = sum(map(len, batches))
    assert run == [str(1000 + n) for n in range(total)]
    assert all(numbers == sorted(numbers) for key, numbers in started.items() if key is not None)


def test_a_slow_record_holds_up_its_key_and_at_most_as_many_others() -> None:
    open_records = OpenRecords(4)
    open_records.add(batch_of(["slow", "a", "slow", "b", "c", "d"], 0))
    begun = []
    slow = open_records.start()
    assert slow is not None
    while (one := open_records.start()) is not None:
        begun.append(one.record.partition_key)
        assert open_records.finish(one) == []
    assert begun == ["a", "b"]
    assert not open_records.has_room
    (run,) = open_records.finish(slow)
    assert [record.partition_key for record in run.records] == ["slow", "a"]


def test_a_batch_may_be_added_while_fewer_records_are_open_than_may_be() -> None:
    records = OpenRecords(2)
    rooms = [records.has_room]
    assert records.first is None
    for n, key in enumerate("ab"):
        records.add(batch_of([key], n))
        rooms.append(records.has_room)
    assert rooms == [True, True, False]
    assert records.first is records.start()


def test_a_batch_whose_records_are_finished_takes_no_memory() -> None:
    records = OpenRecords(2)
    batch = batch_of(["a", "b"], 0)
    is_there = weakref.ref(batch._rows)
    records.add(batch)
    del batch
    while (one := records.start()) is not None:
        records.finish(one)
    del one
    gc.collect()
    assert is_there() is None
