"""Many leases are created several at once, and none before its parents'."""

from __future__ import annotations

import random
import threading

import pytest

from sparkinesis.errors import AccessDeniedError, LeaseTableUnavailableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.children import early_children, orphaned_children
from sparkinesis.lease.rules.lease_start import LeaseStart
from sparkinesis.lease.rules.shard_sync import leases_for_partial_table
from sparkinesis.lease.shards.creation import MOST_HELPERS, create_leases, generations
from sparkinesis.stream.calls.retry import Attempts, Backoff
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, InitialPosition
from sparkinesis.stream.shard import Lineage, Shard
from tests import pace
from tests.unit.lease.rules.test_shard_sync import GRAPH_A, GRAPH_B, graph, lease

MANY = [lease(f"{n:03}") for n in range(400)]


def ids(leases: list[Lease]) -> list[str]:
    return [one.shard_id for one in leases]


class Table:
    """Notes what is created, in order; each call may fail or wait first."""

    def __init__(self) -> None:
        self.created: list[Lease] = []
        self.together = 0
        """The most calls at a time."""
        self._inside = 0
        self._lock = threading.Lock()

    def meet(self, one: Lease, *, is_helper: bool) -> None:
        """Fail or wait."""

    def create(self, one: Lease, retry: Backoff | None) -> None:
        with self._lock:
            self._inside += 1
            self.together = max(self.together, self._inside)
        try:
            self.meet(one, is_helper=retry is not None)
            self.created.append(one)
        finally:
            with self._lock:
                self._inside -= 1


class Crowded(Table):
    """Answers none of the first calls before as many are under way as may be."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self._expected = expected
        self._changed = threading.Condition()
        self._calls = 0

    def meet(self, one: Lease, *, is_helper: bool) -> None:
        del one
        with self._changed:
            self._calls += 1
            self._changed.notify_all()
            # This thread starts the helpers, after each call of its own.
            if is_helper:
                assert self._changed.wait_for(
                    lambda: self._calls >= self._expected, pace.seconds(20)
                )


def test_many_leases_are_created_at_the_same_time() -> None:
    table = Crowded(40)
    create_leases(MANY, table.create)
    assert sorted(ids(table.created)) == ids(MANY)
    assert 10 < table.together <= 1 + min(MOST_HELPERS, len(MANY) // 16)


def test_few_leases_are_created_one_after_the_other_by_the_thread_that_asks() -> None:
    table = Table()
    me = threading.current_thread()

    def create(one: Lease, retry: Backoff | None) -> None:
        assert threading.current_thread() is me
        assert retry is None
        table.create(one, retry)

    create_leases(MANY[:16], create)
    assert table.created == MANY[:16]


def test_a_lease_is_created_once_those_of_its_parents_are() -> None:
    """Three generations of 100 shards each, of which each has one child."""
    rows = [
        lease(f"{generation}-{n}", "5", *([f"{generation - 1}-{n}"] if generation else []))
        for generation in range(3)
        for n in range(100)
    ]
    there: set[str] = set()

    class Waits(Crowded):
        def meet(self, one: Lease, *, is_helper: bool) -> None:
            assert there.issuperset(one.parent_ids)
            if one.parent_ids == ():
                super().meet(one, is_helper=is_helper)

    table = Waits(10)

    def create(one: Lease, retry: Backoff | None) -> None:
        table.create(one, retry)
        there.add(one.shard_id)

    create_leases(rows, create)
    assert table.together > 1
    assert len(table.created) == 300


def test_a_table_that_throttles_is_left_to_one_caller() -> None:
    """As without helpers, whose calls are not repeated: none of them keeps the table busy."""

    changed = threading.Condition()
    failed = 0

    class Throttles(Table):
        def meet(self, one: Lease, *, is_helper: bool) -> None:
            del one
            nonlocal failed
            with changed:
                if is_helper:
                    failed += 1
                    changed.notify_all()
                    raise LeaseTableUnavailableError("throttled")
                # Each call before this one has started a helper, while many leases were left.
                expected = min(len(self.created), len(MANY) - 20)
                assert changed.wait_for(lambda: failed >= expected, pace.seconds(20))

    pauses: set[float | None] = set()

    def create(one: Lease, retry: Backoff | None) -> None:
        if retry is not None:
            pauses.add(Attempts(retry).next_pause())
        table.create(one, retry)

    table = Throttles()
    create_leases(MANY, create)
    assert pauses == {None}  # no call is made again
    assert sorted(ids(table.created)) == ids(MANY)
    assert failed <= len(MANY)
    assert table.together == 2


def test_a_lease_that_a_helper_could_not_create_is_created_in_the_end() -> None:
    """Its call fails when no other lease is left."""
    last = threading.Event()

    class Fails(Table):
        def meet(self, one: Lease, *, is_helper: bool) -> None:
            if is_helper and not last.is_set():
                assert last.wait(pace.seconds(20))
                raise RuntimeError("one of ours")
            if len(self.created) >= len(MANY) - 40:
                last.set()

    table = Fails()
    create_leases(MANY, table.create)
    assert sorted(ids(table.created)) == ids(MANY)


@pytest.mark.parametrize("at", [0, 100])
def test_an_error_that_lasts_is_raised_and_ends_the_creation(at: int) -> None:
    class Denies(Table):
        def meet(self, one: Lease, *, is_helper: bool) -> None:
            del one, is_helper
            if len(self.created) >= at:
                raise AccessDeniedError("no")

    table = Denies()
    with pytest.raises(AccessDeniedError):
        create_leases(MANY, table.create)
    assert at <= len(table.created) <= at + MOST_HELPERS
    assert not any(one.name.startswith("create-lease") for one in threading.enumerate())


def test_an_interrupt_ends_the_creation() -> None:
    """The helpers meet no error."""
    begun = threading.Event()

    class Interrupted(Table):
        def meet(self, one: Lease, *, is_helper: bool) -> None:
            del one
            if is_helper:
                begun.set()
                threading.Event().wait(0.005)  # what a call takes
            elif self.created:
                assert begun.wait(pace.seconds(20))
                raise KeyboardInterrupt

    table = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        create_leases(MANY, table.create)
    assert len(table.created) < len(MANY) // 2


def test_of_many_leases_none_is_created_once_the_worker_is_to_end() -> None:
    """Nor are those of their children."""
    table = Table()
    rows = [*MANY, lease("child", "5", "399")]
    create_leases(rows, table.create, lambda: True)
    assert table.created == MANY[:1]


def test_few_leases_are_created_even_if_the_worker_is_to_end() -> None:
    """It takes no longer than to find out: some other worker would have to create them."""
    table = Table()
    create_leases(MANY[:16], table.create, lambda: True)
    assert table.created == MANY[:16]


def test_generations_keep_the_order_and_part_parents_from_children() -> None:
    rows = [
        lease("a"),
        lease("b"),
        lease("c", "5", "a", "x"),
        lease("d", "5", "b"),
        lease("e", "5", "c", "d"),
    ]
    assert [ids(part) for part in generations(rows)] == [["a", "b"], ["c", "d"], ["e"]]
    assert list(generations([])) == []


def drawn_graph(rng: random.Random) -> list[Shard]:
    """Shards by splits and merges, in order of creation; some of the oldest have expired."""
    words = [str(n) for n in range(rng.randint(1, 4))]
    is_open = list(words)
    for _ in range(rng.randint(0, 8)):
        if len(is_open) > 1 and rng.random() < 0.5:
            parents = rng.sample(is_open, 2)
            children = [str(len(words))]
        else:
            parents = [rng.choice(is_open)]
            children = [str(len(words)), str(len(words) + 1)]
        is_open = [one for one in is_open if one not in parents] + children
        words += [f"{child}<{'+'.join(parents)}" for child in children]
    shards = graph(" ".join(words))
    return shards[rng.choice([0, 0, rng.randrange(len(shards))]) :]


@pytest.mark.parametrize("initial", [TRIM_HORIZON, LATEST])
def test_no_part_has_a_shard_and_an_ancestor_of_it(initial: InitialPosition) -> None:
    """Not by way of shards between them without leases, either: of all rules, on any graph."""
    rng = random.Random(7)
    begin = LeaseStart(initial, made_ms=1, is_now=initial is LATEST)
    together = 0
    for _ in range(500):
        shards = drawn_graph(rng)
        rows = [
            lease(shard.id, rng.choice(["5", "SHARD_END"]), *shard.parents)
            for shard in shards
            if rng.random() < 0.3
        ]
        lineage = Lineage.of(shard for shard in shards if shard.id not in ids(rows))
        for made in (
            leases_for_partial_table(shards, rows, begin, initial),
            orphaned_children(rows, shards, begin),
            early_children(rows, shards, begin),
        ):
            for part in generations(made):
                found = {one.shard_id for one in part}
                together = max(together, len(found))
                assert found.isdisjoint(lineage.ancestors(found)), (shards, rows, made)
    assert together > 2


@pytest.mark.parametrize("text", [GRAPH_A, GRAPH_B])
def test_the_graphs_of_the_rules_are_created_in_order_too(text: str) -> None:
    shards = graph(text)
    rows = [lease(shard.id, "5", *shard.parents) for shard in shards]
    assert [one for part in generations(rows) for one in part] == rows
