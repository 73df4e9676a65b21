"""The estimates of memory hold against what is allocated."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from sparkinesis.stream.calls.answers.decoding import data_size, decode_page
from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Fetched, Page
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.retrieval import memory_estimates as estimates

RNG = random.Random(1)
FIRST = 49590338271490256608559692538361571095921575989136588898


def plain(size: int) -> list[bytes]:
    return [RNG.randbytes(size) for _ in range(max(100, 200_000 // size))]


def kpl(size: int) -> list[bytes]:
    users = [(f"key-{n % 300}", None, RNG.randbytes(size)) for n in range(400_000 // size)]
    return [blob.data for blob in aggregate(users)]


KINDS = {
    "10 B": partial(plain, 10),
    "200 B": partial(plain, 200),
    "10 KB": partial(plain, 10_000),
    "KPL, 20 B": partial(kpl, 20),
    "KPL, 500 B": partial(kpl, 500),
}


def body(datas: Sequence[bytes], key: str = "partition-key") -> bytes:
    records = [
        {
            "SequenceNumber": str(FIRST + number),
            "ApproximateArrivalTimestamp": 1_790_000_000.123,
            "Data": base64.b64encode(data).decode(),
            "PartitionKey": f"{key}-{number}",
        }
        for number, data in enumerate(datas)
    ]
    return json.dumps({"Records": records, "NextShardIterator": "x"}).encode()


def fetched(datas: Sequence[bytes]) -> Fetched:
    answer = body(datas)
    page = decode_page(answer)
    return Fetched(page, data_size(len(answer), page), 0)


def allocated(make: Callable[[], Any]) -> tuple[Any, int]:
    """What is made, and the bytes that it takes as Python objects."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = make()
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return made, size


def batch_of(page: Page) -> RecordBatch:
    return make_batch(
        page.records,
        stream="flights",
        shard_id="shardId-000000000000",
        millis_behind_latest=0,
    )[0]


def memory_of(page: Page) -> int:
    return estimates.batch_memory(page.records, estimate_unpacked(page.records))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_takes_what_it_is_said_to_take(kind: str) -> None:
    answer = body(KINDS[kind]())
    page, size = allocated(lambda: decode_page(answer))
    estimate = estimates.page_memory(Fetched(page, data_size(len(answer), page), 0))
    assert 0.9 * size <= estimate <= 1.2 * size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["k", "k" * 200])
def test_a_batch_takes_what_it_is_said_to_take_with_its_objects(kind: str, key: str) -> None:
    answer = body(KINDS[kind](), key)
    page, packed = allocated(lambda: decode_page(answer))
    batch = batch_of(page)
    _, objects = allocated(lambda: batch.records)
    both = batch.to_arrow().nbytes + objects
    # The packed records of aggregates are let go of as soon as there are both forms.
    size = both if kind.startswith("KPL") else both + packed
    assert 0.9 * size <= memory_of(page) <= 1.3 * size


def test_a_batch_with_long_keys_takes_what_it_is_said_to_take() -> None:
    users = [(f"{n % 3}" * 250, f"{10**38 + n % 5}", RNG.randbytes(50)) for n in range(5000)]
    page = fetched([blob.data for blob in aggregate(users)]).page
    batch = batch_of(page)
    _, objects = allocated(lambda: batch.records)
    size = batch.to_arrow().nbytes + objects
    assert 0.9 * size <= memory_of(page) <= 1.3 * size


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_page_takes_as_a_batch_is_known_before_or_thought_larger(kind: str) -> None:
    page = fetched(KINDS[kind]())
    memory = memory_of(page.page)
    estimate = estimates.estimate_batch_memory(page, estimates.FIRST_EXPANSION)
    assert (
        memory * 0.9 <= estimate <= estimates.largest_batch_memory(page, estimates.FIRST_EXPANSION)
    )
    if not kind.startswith("KPL"):
        assert estimate <= 1.1 * memory


@pytest.mark.parametrize("kind", ["KPL, 20 B", "KPL, 500 B"])
def test_aggregates_take_what_those_before_took(kind: str) -> None:
    page = fetched([*KINDS[kind](), *KINDS["200 B"]()[:50]])
    memory = memory_of(page.page)
    expansion = estimates.measure_expansion(page.page.records, memory)
    assert estimates.estimate_batch_memory(page, expansion) == pytest.approx(memory, rel=0.05)


def test_so_many_records_as_fit_and_one_in_any_case() -> None:
    page = fetched(KINDS["200 B"]())
    records = page.page.records
    each = estimates.page_memory(page) / len(records)
    assert estimates.records_within(page, round(each * 10.5)) == 10
    assert estimates.records_within(page, 1) == 1
    assert estimates.records_within(page, 10**9) == len(records)
    room = estimates.estimate_batch_memory(page, 1.0) // 2
    assert estimates.batch_records_within(records, room, 1.0) == pytest.approx(
        len(records) / 2, rel=0.05
    )
    assert estimates.batch_records_within(records, 1, 1.0) == 1
