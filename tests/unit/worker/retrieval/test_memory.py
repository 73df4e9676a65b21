"""The budget of memory: who is granted how much, who waits, and what comes back."""

from __future__ import annotations

import base64
import json
import random
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparkinesis.stream.calls.answers.decoding import data_size, decode_page
from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Fetched, Page
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.retrieval import memory as estimates
from sparkinesis.worker.retrieval.memory import (
    Account,
    Hold,
    MemoryBudget,
    floor_of,
)
from tests.examples import examples

MIB = 1_048_576
PATIENCE = 30.0


def crowded(mib: int = 64) -> tuple[MemoryBudget, Hold]:
    """A budget of 64 MiB, of which another account holds so many."""
    budget = MemoryBudget(64 * MIB)
    others = Account(budget).ask(1)
    others.force(mib * MIB)
    return budget, others


def test_an_account_may_hold_half_of_what_the_others_leave() -> None:
    budget = MemoryBudget(900)
    holds = [Account(budget).ask(10_000) for _ in range(3)]
    assert [hold.size for hold in holds[:2]] == [450, 225]


@pytest.mark.parametrize("shards", [2, 10, 50])
def test_busy_accounts_come_to_hold_the_same(shards: int) -> None:
    """Each is done with what it had, and asks for more than there is, in turn."""
    limit = 100 * MIB
    budget = MemoryBudget(limit)
    accounts = [Account(budget) for _ in range(shards)]
    holds = [account.ask(limit) for account in accounts]
    for _ in range(8 * shards):
        for place, account in enumerate(accounts):
            holds[place].release()
            holds[place] = account.ask(limit)
    sizes = [hold.size for hold in holds]
    assert max(sizes) <= 1.1 * min(sizes)
    assert sum(sizes) >= 0.6 * limit, "and leave little unused"
    assert sum(sizes) <= limit


def test_who_waits_is_granted_what_becomes_free_and_who_holds_least_is_first() -> None:
    budget, sleeper = crowded()
    much, little = Account(budget), Account(budget)
    much.ask(1).force(4 * MIB)
    little.ask(1).force(MIB)
    waiting = [much.ask(8 * MIB), little.ask(8 * MIB)]
    assert [hold.size for hold in waiting] == [0, 0]
    sleeper.force(40 * MIB)
    assert waiting[0].size < waiting[1].size > MIB
    sleeper.release()
    assert min(hold.size for hold in waiting) > MIB


def test_what_cannot_be_divided_waits_until_all_of_it_fits() -> None:
    budget, other = crowded(40)
    account = Account(budget)
    account.ask(1).force(6 * MIB)
    event = account.ask(7 * MIB, 7 * MIB)
    assert not event.size
    other.force(30 * MIB)
    assert event.size == 7 * MIB


def test_a_grant_grows_only_while_there_is_room() -> None:
    budget = MemoryBudget(64 * MIB)
    hold = Account(budget).ask(10 * MIB)
    assert hold.resize(20 * MIB) == 20 * MIB
    assert hold.resize(60 * MIB) == 32 * MIB
    hold.force(60 * MIB)
    assert hold.resize(59 * MIB) == 59 * MIB, "what is there is not taken away"


def test_waiting_ends_with_the_account() -> None:
    budget = MemoryBudget(64 * MIB)
    account = Account(budget)
    account.ask(1).force(64 * MIB)
    told: list[str] = []
    waiting = account.ask(MIB, on_decided=lambda: told.append("decided"))
    account.close()
    assert (told, waiting.is_decided, waiting.size) == (["decided"], True, 0)
    after = account.ask(MIB)
    assert (after.is_decided, after.size) == (True, 0)
    assert budget.held == 64 * MIB, "until it is given back"


def test_many_threads_leave_nothing_behind() -> None:
    budget = MemoryBudget(MIB)

    def work(account: Account) -> None:
        for _ in range(200):
            hold, told = account.ask(MIB), threading.Event()
            more = account.ask(MIB, on_decided=told.set)
            assert hold.is_decided
            hold.release()
            assert more.is_decided or told.wait(PATIENCE)
            assert more.size
            more.release()
        account.close()

    threads = [threading.Thread(target=work, args=(Account(budget),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert (budget.held, budget.accounts) == (0, 0)
    assert budget.most_held <= MIB + 8 * floor_of(MIB, 1)


class Shards(RuleBasedStateMachine):
    """Shards that come, fetch, process, lose their leases, and go, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts: list[Account] = []
        self.holds: list[tuple[Account, Hold]] = []
        self.forced = 0
        """Bytes by which holds were made larger than what was granted, so far."""
        self.most_accounts = 0

    @initialize(limit=st.sampled_from((64, 10_000, 10 * MIB)))
    def begin(self, limit: int) -> None:
        self.budget = MemoryBudget(limit)

    def _some(self, place: int) -> tuple[Account, Hold] | None:
        return self.holds[place % len(self.holds)] if self.holds else None

    @rule()
    def acquire_a_shard(self) -> None:
        self.accounts.append(Account(self.budget))

    @rule(place=st.integers(0, 99), want=st.integers(1, 20 * MIB), whole=st.booleans())
    def ask(self, place: int, want: int, whole: bool) -> None:
        if not self.accounts:
            return
        account = self.accounts[place % len(self.accounts)]
        held = account.held
        hold = account.ask(want, want if whole else None)
        self.most_accounts = max(self.most_accounts, self.budget.accounts)
        assert hold.size <= want
        if not held:
            assert hold.size >= min(want, self.budget.floor), "it had nothing, and must wait"
        self.holds.append((account, hold))

    @rule(place=st.integers(0, 99), size=st.integers(0, 20 * MIB))
    def the_page_is_there(self, place: int, size: int) -> None:
        if (some := self._some(place)) is not None and some[1].size:
            before = some[1].size
            assert min(size, before) <= some[1].resize(size) <= size or size > before

    @rule(place=st.integers(0, 99), size=st.integers(0, MIB))
    def it_cannot_be_divided(self, place: int, size: int) -> None:
        if (some := self._some(place)) is not None and some[1].size:
            self.forced += max(0, size - some[1].size)
            some[1].force(size)

    @rule(place=st.integers(0, 99))
    def done(self, place: int) -> None:
        if (some := self._some(place)) is not None:
            some[1].release()
            some[1].release()
            self.holds.remove(some)

    @rule(place=st.integers(0, 99))
    def stop_fetching(self, place: int) -> None:
        if (some := self._some(place)) is not None:
            size = some[1].size
            some[1].cancel()
            assert some[1].size == size

    @rule(place=st.integers(0, 99))
    def lose_the_lease(self, place: int) -> None:
        """Whatever it holds or waits for comes back, by whoever has it."""
        if not self.accounts:
            return
        account = self.accounts.pop(place % len(self.accounts))
        account.close()
        for each in [each for each in self.holds if each[0] is account]:
            each[1].release()
            self.holds.remove(each)
        assert not account.held

    @invariant()
    def the_books_are_right(self) -> None:
        assert self.budget.held == sum(hold.size for _, hold in self.holds)
        for account in self.accounts:
            assert account.held == sum(h.size for a, h in self.holds if a is account)

    @invariant()
    def no_more_is_held_than_the_budget_and_floors(self) -> None:
        most = self.budget.limit + self.most_accounts * floor_of(self.budget.limit, 1)
        assert self.budget.held <= most + self.forced

    @invariant()
    def nobody_waits_without_need(self) -> None:
        """Who waits holds something, or there is no room for it."""
        for hold in self.budget._waiting:
            assert hold._account.held
            assert self.budget._room(hold._account) < hold._least


Shards.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, derandomize=True
)
TestShards = Shards.TestCase


RNG = random.Random(1)
FIRST = 49590338271490256608559692538361571095921575989136588898


def plain(size: int) -> list[bytes]:
    return [RNG.randbytes(size) for _ in range(max(50, 50_000 // size))]


def kpl(size: int) -> list[bytes]:
    users = [(f"key-{n % 300}", None, RNG.randbytes(size)) for n in range(100_000 // size)]
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


def memory_of(page: Fetched) -> int:
    aggregates = aggregates_of(page.page.records)
    return estimates.batch_memory(page, aggregates, estimate_unpacked(aggregates))


def estimate_of(page: Fetched, expansion: float) -> int:
    aggregates = aggregates_of(page.page.records)
    return estimates.estimate_batch_memory(page, aggregates, expansion)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_takes_what_it_is_said_to_take(kind: str) -> None:
    answer = body(KINDS[kind]())
    page, size = allocated(lambda: decode_page(answer))
    estimate = estimates.page_memory(Fetched(page, data_size(len(answer), page), 0))
    assert 0.9 * size <= estimate <= 1.2 * size


@pytest.mark.parametrize(("kind", "key"), [*((kind, "k") for kind in KINDS), ("200 B", "k" * 200)])
def test_a_batch_takes_what_it_is_said_to_take_with_its_objects(kind: str, key: str) -> None:
    answer = body(KINDS[kind](), key)
    page, packed = allocated(lambda: decode_page(answer))
    batch = batch_of(page)
    _, objects = allocated(lambda: batch.records)
    both = batch.to_arrow().nbytes + objects
    # The packed records of aggregates are let go of as soon as there are both forms.
    size = both if kind.startswith("KPL") else both + packed
    fetched = Fetched(page, data_size(len(answer), page), 0)
    assert 0.9 * size <= memory_of(fetched) <= 1.3 * size


def test_a_batch_with_long_keys_takes_what_it_is_said_to_take() -> None:
    users = [(f"{n % 3}" * 250, f"{10**38 + n % 5}", RNG.randbytes(50)) for n in range(5000)]
    page = fetched([blob.data for blob in aggregate(users)])
    batch = batch_of(page.page)
    _, objects = allocated(lambda: batch.records)
    size = batch.to_arrow().nbytes + objects
    assert 0.9 * size <= memory_of(page) <= 1.3 * size


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_page_takes_as_a_batch_is_known_before_or_thought_larger(kind: str) -> None:
    page = fetched(KINDS[kind]())
    memory = memory_of(page)
    estimate = estimate_of(page, estimates.FIRST_EXPANSION)
    assert memory * 0.9 <= estimate
    if not kind.startswith("KPL"):
        assert estimate <= 1.1 * memory


@pytest.mark.parametrize("kind", ["KPL, 20 B", "KPL, 500 B"])
def test_aggregates_take_what_those_before_took(kind: str) -> None:
    page = fetched([*KINDS[kind](), *KINDS["200 B"]()[:50]])
    aggregates = aggregates_of(page.page.records)
    expansion = estimates.measure_expansion(aggregates, estimate_unpacked(aggregates))
    assert estimate_of(page, expansion) == pytest.approx(memory_of(page), rel=0.05)


def test_so_many_records_as_fit_and_one_in_any_case() -> None:
    page = fetched(KINDS["200 B"]())
    records = page.page.records
    each = estimates.page_memory(page) / len(records)
    assert estimates.records_within(page, round(each * 10.5)) == 10
    assert estimates.records_within(page, 1) == 1
    assert estimates.records_within(page, 10**9) == len(records)
    room = estimate_of(page, 1.0) // 2
    assert estimates.batch_records_within(records, (), room, 1.0) == pytest.approx(
        len(records) / 2, rel=0.05
    )
    assert estimates.batch_records_within(records, (), 1, 1.0) == 1
