"""Which leases are deleted, and that an application's life is the same with and without it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.children import orphaned_children, plan_children
from sparkinesis.lease.rules.cleanup import audit_needs_them, deletable
from sparkinesis.lease.rules.lease_start import lease_start, new_lease
from sparkinesis.lease.rules.shard_sync import leases_for_partial_table
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.routing import MAX_HASH_KEY
from sparkinesis.stream.shard import Lineage, Shard
from tests.examples import examples


def lease(shard_id: str, at: str, parents: str = "", children: str = "") -> Lease:
    return Lease(
        shard_id,
        shard_id,
        ExtendedSequenceNumber(at),
        parent_ids=tuple(parents.split()),
        child_ids=tuple(children.split()),
    )


PARENT = lease("0", SHARD_END, children="1 2")


@pytest.mark.parametrize(
    ("leases", "deleted"),
    [
        ([PARENT, lease("1", "5", "0"), lease("2", "LATEST", "0")], "0"),
        ([PARENT, lease("1", "5", "0"), lease("2", "TRIM_HORIZON", "0")], ""),
        ([PARENT, lease("1", "5", "0"), lease("2", "AT_TIMESTAMP", "0")], ""),
        ([PARENT, lease("1", "5", "0")], ""),
        ([PARENT, lease("1", SHARD_END, "0", "3"), lease("2", "5"), lease("3", "5", "1")], "0"),
        ([lease("1", SHARD_END, "0", "3"), lease("2", "5"), lease("3", "5", "1")], "1"),
        ([replace(PARENT, checkpoint=ExtendedSequenceNumber("7"))], ""),
        ([lease("0", SHARD_END)], ""),
    ],
)
def test_a_finished_lease_goes_once_its_children_are_read(
    leases: list[Lease], deleted: str
) -> None:
    assert [row.shard_id for row in deletable(leases, None)] == deleted.split()


def test_children_that_only_the_service_tells_of() -> None:
    leases = [lease("0", SHARD_END), lease("1", "5"), lease("2", "5")]
    shards = [Shard("0", is_open=False), Shard("1", ("0",)), Shard("2", ("0",))]
    assert deletable(leases, shards) == leases[:1]
    assert deletable(leases[:2], shards) == []
    assert deletable(leases, None) == []


def test_leases_of_shards_that_are_kept_no_more() -> None:
    ended, unread, child = lease("0", SHARD_END), lease("1", "5"), Shard("2", ("0",))
    other = Shard("9")
    assert deletable([ended, unread], [other]) == [ended]
    # Its child would be forgotten.
    assert deletable([ended, unread], [other, child]) == []
    assert deletable([ended, lease("2", "TRIM_HORIZON", "0")], [other, child]) == [ended]
    # Not a single shard: something else is wrong.
    assert deletable([ended, unread], []) == []
    assert deletable([ended, unread], None) == []


def test_a_listing_that_is_behind_does_not_make_young_shards_old() -> None:
    """Shards expire oldest first: one that is missing, and its ancestor not, is not listed yet."""
    grandparent, parent = lease("0", SHARD_END, "", "1"), lease("1", SHARD_END, "0", "2")
    child, open_ = lease("2", SHARD_END, "1", "3"), lease("3", "TRIM_HORIZON", "2")
    listed = [Shard("0", is_open=False)]
    assert deletable([grandparent, parent, child, open_], listed) == [grandparent]
    # A shard's lease whose parent's is gone already.
    assert deletable([parent, lease("2", "TRIM_HORIZON", "1")], listed) == []
    # So it is if a younger one is listed: by another page, which is not behind.
    assert deletable([grandparent, parent, child, open_], [*listed, Shard("9")]) == [grandparent]


def test_an_audit_needs_finished_leases_while_hash_keys_have_no_reader() -> None:
    ended = replace(PARENT, hash_range=(0, MAX_HASH_KEY))
    low = replace(lease("1", "TRIM_HORIZON"), hash_range=(0, 9))
    high = replace(lease("2", "5"), hash_range=(10, MAX_HASH_KEY))
    assert audit_needs_them([ended])
    assert audit_needs_them([ended, low])
    assert not audit_needs_them([ended, low, high])


class Life:
    """An application and its stream: resharding, reading, trimming and cleanup in any order."""

    def __init__(self, rng: random.Random, position: InitialPosition) -> None:
        self.position = position
        self.rng, self.position = rng, position
        self.shards: dict[str, Shard] = {}
        self.leases: dict[str, Lease] = {}
        self.finished: set[str] = set()
        self.created: set[str] = set()
        self.number = 0
        for _ in range(rng.randint(1, 4)):
            self.new_shard()
        for _ in range(rng.randint(0, 4)):
            self.reshard()
        for shard in [s for s in self.shards.values() if s.is_open]:
            self.create(new_lease(shard, position, 1))

    def new_shard(self, *parents: str) -> None:
        shard_id = f"{self.number:03d}"
        self.shards[shard_id] = Shard(
            shard_id, parents, starting_sequence_number=str(100 + self.number)
        )
        self.number += 1
        for parent in parents:
            self.shards[parent] = replace(self.shards[parent], is_open=False)

    def create(self, row: Lease) -> None:
        assert row.shard_id not in self.created, "nothing is read twice"
        self.created.add(row.shard_id)
        self.leases[row.key] = row

    def reshard(self) -> None:
        still_open = [s.id for s in self.shards.values() if s.is_open]
        if self.rng.random() < 0.5 and len(still_open) > 1:
            self.new_shard(*self.rng.sample(still_open, 2))
        else:
            parent = self.rng.choice(still_open)
            self.new_shard(parent)
            self.new_shard(parent)

    def read(self) -> None:
        ready = [
            row
            for row in self.leases.values()
            if not row.is_finished
            and all(
                self.leases[p].is_finished if p in self.leases else True for p in row.parent_ids
            )
        ]
        row = self.rng.choice(sorted(ready, key=lambda row: row.key))
        ancestors = Lineage.of(self.shards.values()).ancestors([row.shard_id])
        assert not (ancestors & self.created) - self.finished, "ancestors are read first"
        if row.checkpoint.is_sentinel or self.shards[row.shard_id].is_open:
            at = ExtendedSequenceNumber("5")
            self.leases[row.key] = replace(row, checkpoint=at, timestamp_ms=None)
            return
        children = [s for s in self.shards.values() if row.shard_id in s.parents]
        leases, shards = list(self.leases.values()), list(self.shards.values())
        begin = lease_start(leases, shards, self.position, 1)
        plan = plan_children(row, children, leases, shards, begin)
        for child in plan.create:
            self.create(child)
        if not plan.wait_for:
            self.finished.add(row.shard_id)
            self.leases[row.key] = replace(
                row,
                checkpoint=ExtendedSequenceNumber(SHARD_END),
                child_ids=tuple(sorted(c.id for c in children)),
            )

    def trim(self) -> None:
        """The service forgets the oldest shard, which has been read or never was to be."""
        oldest = min(self.shards)
        if not self.shards[oldest].is_open and oldest not in self.created - self.finished:
            del self.shards[oldest]

    def clean(self) -> None:
        listed = self.rng.choice([None, list(self.shards.values())])
        for row in deletable(self.leases.values(), listed):
            assert row.is_finished
            if self.rng.random() < 0.8:  # or somebody dies in between
                del self.leases[row.key]

    def check(self) -> None:
        shards, leases = list(self.shards.values()), list(self.leases.values())
        for position in (LATEST, TRIM_HORIZON, AtTimestamp(1)):
            begin = lease_start(leases, shards, position, 1)
            assert leases_for_partial_table(shards, leases, begin, position) == []
            assert orphaned_children(leases, shards, begin) == []


@settings(max_examples=examples(75), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([LATEST, TRIM_HORIZON, AtTimestamp(1)]),
    st.lists(
        st.sampled_from(["reshard", "read", "read", "read", "trim", "clean", "clean"]), max_size=80
    ),
)
def test_cleanup_changes_nothing_of_what_is_read_and_when(
    seed: int, position: InitialPosition, steps: list[str]
) -> None:
    life = Life(random.Random(seed), position)
    life.check()
    for step in steps:
        getattr(life, step)()
        life.check()
    for _ in range(2000):
        if all(s.id in life.leases for s in life.shards.values() if s.is_open):
            break
        life.read()
    else:
        pytest.fail("reading came to a halt")
    for _ in range(200):
        life.read()
    for _ in range(200):
        life.clean()
    unfinished = {row.shard_id for row in life.leases.values() if not row.is_finished}
    assert unfinished >= {s.id for s in life.shards.values() if s.is_open}
