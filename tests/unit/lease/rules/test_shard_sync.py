"""Which leases are created, on graphs of splits and merges."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.children import ChildLeases, orphaned_children, plan_children
from sparkinesis.lease.rules.lease_start import (
    ANY_AGE,
    LeaseStart,
    lease_start,
)
from sparkinesis.lease.rules.shard_sync import (
    expired_unread,
    leases_for_empty_table,
    leases_for_partial_table,
    through_reshard,
)
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard

NOW = 1_790_000_000_000
AT = AtTimestamp(NOW - 60_000)


def graph(text: str) -> list[Shard]:
    """Shards by name: "1<0" came from 0, "7<2+3" from both; what has children is closed."""
    made = [(name, tuple(filter(None, parents.split("+")))) for name, _, parents in split(text)]
    closed = {parent for _, parents in made for parent in parents}
    return [
        Shard(name, parents, name not in closed, None, str(100 + place))
        for place, (name, parents) in enumerate(made)
    ]


def split(text: str) -> list[tuple[str, str, str]]:
    return [word.partition("<") for word in text.split()]


# Graph A: 0 and 1 are merged to 6, which is split into 8 and 9; 2 and 3 to 7; 8 and 7 to 10.
# 4 and 5 stay as they were.
GRAPH_A = "0 1 2 3 4 5 6<0+1 7<2+3 8<6 9<6 10<8+7"
# Graph B: splits and merges in turn.
#   0   1
#    \ /
#     2
#    / \
#   3   4
#    \ /
#     5
#    / \
#   6   7
#    \ /
#     8
#    / \
#   9   10
GRAPH_B = "0 1 2<0+1 3<2 4<2 5<3+4 6<5 7<5 8<6+7 9<8 10<8"
# Graph C: two chains that never meet.
GRAPH_C = "0 1 2<0 3<0 4<1 5<1"


FIRST = NOW - 7_000
"""When an application began at LATEST."""


def lease(shard_id: str, at: str = "5", *parents: str, **more: Any) -> Lease:
    return Lease(shard_id, shard_id, ExtendedSequenceNumber(at), parent_ids=parents, **more)


def synced(text: str, leased: str, position: InitialPosition) -> dict[str, str]:
    """What is created, in order: shard id and checkpoint."""
    return synced_beside([lease(shard_id) for shard_id in leased.split()], text, position)


def synced_beside(rows: list[Lease], text: str, position: InitialPosition) -> dict[str, str]:
    begin = lease_start(rows, graph(text), position, NOW)
    created = leases_for_partial_table(graph(text), rows, begin, position)
    return {row.shard_id: str(row.checkpoint) for row in created}


# An empty table


def halves(*, closed: str = "") -> list[Shard]:
    middle = MAX_HASH_KEY // 2
    return [
        Shard("b", (), "b" not in closed, (middle + 1, MAX_HASH_KEY), "12"),
        Shard("a", ("x", "w"), "a" not in closed, (0, middle), "9"),
    ]


@pytest.mark.parametrize(
    ("position", "checkpoint", "timestamp_ms"),
    [(LATEST, "LATEST", NOW), (TRIM_HORIZON, "TRIM_HORIZON", None), (AT, "AT_TIMESTAMP", AT.ms)],
)
def test_an_empty_table_gets_all_shards_of_the_position(
    position: InitialPosition, checkpoint: str, timestamp_ms: int | None
) -> None:
    leases = leases_for_empty_table(halves(closed="b"), position, NOW)
    assert leases == [
        Lease(
            key=shard.id,
            shard_id=shard.id,
            checkpoint=ExtendedSequenceNumber(checkpoint),
            parent_ids=tuple(sorted(shard.parents)),
            hash_range=shard.hash_range,
            timestamp_ms=timestamp_ms,
            application_ms=NOW if position is LATEST else None,
            made_ms=NOW,
        )
        for shard in reversed(halves())
    ]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "no shard has the keys from 0"),
        ([(0, 9)], "no shard has the keys from 10 on, after s0"),
        ([(1, MAX_HASH_KEY)], "between the first hash key and s0 there is a hole"),
        ([(0, 9), (11, MAX_HASH_KEY)], "between s0 and s1 there is a hole"),
        ([(0, 9), (9, MAX_HASH_KEY)], "between s0 and s1 there is an overlap"),
        ([None], "no hash range of s0"),
        ([(0, MAX_HASH_KEY), None], "no hash range of s1"),
    ],
)
def test_shards_that_do_not_tile_are_refused(
    ranges: list[tuple[int, int] | None], message: str
) -> None:
    shards = [Shard(f"s{i}", hash_range=each) for i, each in enumerate(ranges)]
    with pytest.raises(InconsistentShardsError, match=message):
        leases_for_empty_table(shards, LATEST, NOW)


def test_shards_are_put_together_by_their_hash_keys_whatever_their_ids() -> None:
    shards = [Shard("1", hash_range=(0, 9)), Shard("0", hash_range=(10, MAX_HASH_KEY))]
    assert len(leases_for_empty_table(shards, LATEST, NOW)) == 2


def test_leases_at_an_instant_that_stands_for_latest_tell_it_to_other_workers() -> None:
    """A lease that is missing later begins there, and not with the oldest record."""
    for row in leases_for_empty_table(halves(), AT, NOW, AT.ms):
        assert (row.timestamp_ms, row.application_ms, row.made_ms) == (AT.ms, AT.ms, NOW)


@pytest.mark.parametrize("contradictions", [0, 1, 4, 5])
def test_a_reshard_is_waited_for_four_times_a_second_apart(contradictions: int) -> None:
    tries: list[int] = []
    pauses: list[float] = []

    def task() -> str:
        tries.append(len(tries))
        if len(tries) <= contradictions:
            raise InconsistentShardsError(f"look {len(tries)}")
        return "listed"

    if contradictions < 5:
        assert through_reshard(task, pauses.append) == "listed"
    else:
        with pytest.raises(InconsistentShardsError, match="look 5"):
            through_reshard(task, pauses.append)
    assert pauses == [1.0] * min(contradictions, 4)


def test_an_instant_of_reshards_is_begun_before_them() -> None:
    """ListShards tells of both sides of each: a split, and a merge of one half at once."""
    middle = MAX_HASH_KEY // 2
    shards = [
        Shard("a", (), False, (0, middle), "1"),
        Shard("b", (), False, (middle + 1, MAX_HASH_KEY), "2"),
        Shard("c", ("a",), False, (0, 9), "10"),
        Shard("d", ("a",), False, (10, middle), "11"),
        Shard("e", ("b", "d"), True, (10, MAX_HASH_KEY), "12"),
    ]
    assert [row.key for row in leases_for_empty_table(shards, AT, NOW)] == ["a", "b"]


# A table that has some leases


@pytest.mark.parametrize(
    ("text", "leased", "unread", "trim_horizon"),
    [
        # All open shards are leased, or descend from leased ones.
        (GRAPH_A, "10 9 4 5", "", ""),
        (GRAPH_A, "0 1 2 3 4 5", "", ""),
        (GRAPH_B, "0 1", "", ""),
        (GRAPH_C, "0 1", "", ""),
        # One of two chains. What is leased of the other shows that its beginning is read.
        (GRAPH_C, "0", "1", "1"),
        (GRAPH_C, "2", "3 1", "0 1"),
        # The other parent of a merge, one side of which is leased: the KCL begins it where the
        # application began, or at its oldest ancestor.
        ("0 1 2<0+1", "0", "1", "1"),
        (GRAPH_A, "8 9 4 5", "2 3", "2 3"),
        # With 6 leased, the other side is begun at the start at TRIM_HORIZON: 0 and 1 again, and
        # with them all that 6 stands for. The KCL has this as a known weakness.
        (GRAPH_B, "6", "7", "0 1"),
        (GRAPH_B, "5", "", ""),
        (GRAPH_B, "3", "4", "0 1"),
        # Open shards without relatives.
        ("0 1 2", "1", "0 2", "0 2"),
        # The parents are not kept any more. One has a lease still, at the end of which they begin.
        ("3<1 4<2", "1", "4", "4"),
        # Resharded twice since there were leases: the shards in between are kept, or some.
        ("0 2<1 3<1 4<2 5<2 6<3 7<3", "0", "2 3", "2 3"),
        ("0 3<1 4<2 5<2 6<3 7<3", "0", "4 5 3", "4 5 3"),
    ],
)
def test_what_is_missing_is_created(text: str, leased: str, unread: str, trim_horizon: str) -> None:
    """At LATEST, all that was not read since the application began, whether that is known."""
    rows = [lease(shard_id, application_ms=FIRST) for shard_id in leased.split()]
    assert synced_beside(rows, text, LATEST) == dict.fromkeys(unread.split(), "LATEST")
    assert synced(text, leased, LATEST) == dict.fromkeys(unread.split(), "TRIM_HORIZON")
    oldest = dict.fromkeys(trim_horizon.split(), "TRIM_HORIZON")
    assert synced(text, leased, TRIM_HORIZON) == oldest
    at = synced(text, leased, AT)
    assert at == dict.fromkeys(trim_horizon.split(), "AT_TIMESTAMP")


@pytest.mark.parametrize(
    ("text", "leased", "latest", "oldest"),
    [
        (GRAPH_C, "", "2 3 4 5", "0 1"),
        (GRAPH_B, "", "9 10", "0 1"),
        (GRAPH_A, "", "4 5 9 10", "0 1 2 3 4 5"),
        ("3<1 4<2", "", "3 4", "3 4"),
        # Beside leases of a KCL's at LATEST.
        (GRAPH_C, "2", "3 4 5", "0 1"),
        ("0 1 2<0+1", "0", "1", "1"),
        (GRAPH_A, "8 9 4 5", "7", "2 3"),
        (GRAPH_B, "6", "7", "0 1"),
        ("0 1 2", "1", "0 2", "0 2"),
    ],
)
def test_an_application_that_has_not_begun_begins_with_open_shards_now(
    text: str, leased: str, latest: str, oldest: str
) -> None:
    rows = [lease(shard_id, "LATEST") for shard_id in leased.split()]
    begin = lease_start(rows, graph(text), LATEST, NOW)
    created = leases_for_partial_table(graph(text), rows, begin, LATEST)
    assert {row.shard_id for row in created} == set(latest.split())
    assert {(str(row.checkpoint), row.timestamp_ms) for row in created} == {("LATEST", NOW)}
    assert synced_beside(rows, text, TRIM_HORIZON) == dict.fromkeys(oldest.split(), "TRIM_HORIZON")


@pytest.mark.parametrize(
    ("rows", "instant"),
    [
        # Only some leases of the first start were made.
        ([lease("0", "LATEST", timestamp_ms=FIRST)], FIRST),
        ([lease("0", "LATEST", timestamp_ms=FIRST, application_ms=FIRST)], FIRST),
        # It has read since, and moved one of its shards.
        ([lease("0", application_ms=FIRST), lease("2")], FIRST),
        ([lease("0", "LATEST", timestamp_ms=NOW, application_ms=FIRST)], FIRST),
        # Of several the earliest, so that nothing is left out.
        ([lease("0", application_ms=FIRST + 1), lease("2", application_ms=FIRST)], FIRST),
        # An operator has moved the application to LATEST since the other shard ended.
        ([lease("0", SHARD_END, application_ms=5), lease("2", application_ms=FIRST)], FIRST),
        ([lease("0", SHARD_END, application_ms=FIRST)], FIRST),
        # An older version has written the rows, or a KCL.
        ([lease("0")], None),
        ([lease("0", "TRIM_HORIZON"), lease("2", "LATEST")], None),
        ([lease("9", "LATEST")], None),
        # A KCL's LATEST has been given an instant, which says nothing of the other shards.
        ([lease("0", "LATEST", timestamp_ms=NOW, application_ms=0), lease("2")], None),
    ],
)
def test_a_missing_shard_begins_at_the_first_instant_or_with_its_first_record(
    rows: list[Lease], instant: int | None
) -> None:
    """``9`` has expired. ``1`` and ``2`` came from shards that have, too."""
    shards = graph("0 1<8 2<8")
    begin = lease_start(rows, shards, LATEST, NOW)
    created = {row.shard_id: row for row in leases_for_partial_table(shards, rows, begin, LATEST)}
    one = created["1"]
    if instant is None:
        assert (str(one.checkpoint), one.known) == ("TRIM_HORIZON", ANY_AGE)
    else:
        assert (str(one.checkpoint), one.timestamp_ms, one.application_ms) == (
            "LATEST",
            instant,
            instant,
        )


MADE = NOW - 900_000


@pytest.mark.parametrize(
    ("beside", "known"),
    [
        # A first start that died: its leases are as old as the one with the instant.
        (lease("0", "TRIM_HORIZON"), None),
        (lease("0", "7", made_ms=MADE), None),
        # A KCL's leases, or those of a shard's end whose time nobody knows, may be older.
        (lease("0", "7"), ANY_AGE),
        (lease("0", SHARD_END), ANY_AGE),
        (lease("0", "TRIM_HORIZON", "8"), ANY_AGE),
    ],
)
def test_a_missing_shard_may_have_lost_records_of_any_age_if_some_lease_has_no_instant(
    beside: Lease, known: AtTimestamp | None
) -> None:
    rows = [beside, lease("1", "TRIM_HORIZON", made_ms=NOW - 1000)]
    begin = lease_start(rows, graph("0 1 2<8"), TRIM_HORIZON, NOW)
    assert begin.known == known
    assert begin.may_have_lost(NOW, 86_400_000) == (known == ANY_AGE or beside.made_ms == MADE)


def test_leases_are_created_parents_first() -> None:
    shards = [Shard("z", starting_sequence_number="9"), Shard("a", starting_sequence_number="10")]
    shards += [Shard("b", starting_sequence_number="10")]
    created = leases_for_partial_table(shards, [], LeaseStart(TRIM_HORIZON), TRIM_HORIZON)
    assert [row.shard_id for row in created] == ["z", "a", "b"]


def test_a_long_history_is_no_problem() -> None:
    chain = "0 " + " ".join(f"{i + 1}<{i}" for i in range(5000))
    assert synced(chain, "0", TRIM_HORIZON) == {}
    assert synced(chain, "", TRIM_HORIZON) == {"0": "TRIM_HORIZON"}


def test_an_open_shard_with_children_is_refused() -> None:
    shards = [Shard("0"), Shard("1", ("0",))]
    with pytest.raises(InconsistentShardsError, match="0 is listed as open, and 1 as its children"):
        leases_for_partial_table(shards, [], LeaseStart(LATEST, NOW), LATEST)


# Children


def children_of(parent: str, text: str, finished: str = "", unfinished: str = "") -> ChildLeases:
    shards = graph(text)
    rows = [lease(s, SHARD_END) for s in finished.split()]
    rows += [lease(s) for s in unfinished.split()]
    children = [s for s in shards if parent in s.parents]
    return plan_children(lease(parent), children, rows, shards, BEGIN)


BEGIN = LeaseStart(LATEST, FIRST, FIRST, NOW)


def test_children_begin_with_their_first_record() -> None:
    children = [
        Shard("2", ("1",), hash_range=(5, 9), starting_sequence_number="200"),
        Shard("3", ("1",), hash_range=(0, 4), starting_sequence_number="100"),
    ]
    planned = plan_children(lease("1"), children, [], [], BEGIN, not_before_ms=NOW - 9)
    assert planned == ChildLeases(
        tuple(
            Lease(
                c.id,
                c.id,
                ExtendedSequenceNumber("TRIM_HORIZON"),
                parent_ids=("1",),
                hash_range=c.hash_range,
                known=AtTimestamp(NOW - 9),
                application_ms=FIRST,
                made_ms=NOW,
            )
            for c in reversed(children)
        )
    )


@pytest.mark.parametrize(
    ("text", "finished", "unfinished", "created", "wait_for"),
    [
        ("0 1<0 2<0", "", "0", "1 2", ""),
        ("0 1<0 2<0", "", "0 1", "2", ""),
        # A merge: both parents have leases.
        ("0 1 2<0+1", "", "0 1", "2", ""),
        ("0 1 2<0+1", "1", "0", "2", ""),
        # The other parent has no lease, and none will come by itself.
        ("0 1 2<0+1", "", "0", "1 2", ""),
        ("0 1 3<1 2<0+3", "", "0", "1 3 2", ""),
        # Nor has what that came from, of which another shard came that has one.
        ("0 1 3<1 4<1 2<0+3", "", "0 4", "3 2", ""),
        # It has expired.
        ("0 2<0+1", "", "0", "2", ""),
        # Its lease is to come: an ancestor of it is being read.
        ("0 1 2<1 3<1 4<0+2", "", "0 1", "", "2"),
        ("0 1 5<1 2<5 3<5 4<0+2", "1", "0 5", "", "2"),
        # The ancestor has ended, and its children got none yet.
        ("0 1 2<1 3<1 4<0+2", "1", "0", "", "2"),
        ("0 1 2<1 3<1 4<0+2", "1", "0 3", "", "2"),
        # The ancestor has ended, and so has the other parent since.
        ("0 1 2<1 3<1 4<0+2", "1 2", "0", "4", ""),
        # The ancestor has expired, and its lease is there still.
        ("0 2<9 3<9 4<0+2", "9", "0", "", "2"),
        ("0 2<9 3<9 4<0+2", "", "0 9", "", "2"),
        # So has all of which there were leases, while nobody read.
        ("0 2<9 3<9 4<0+2", "", "0", "2 4", ""),
        ("0 1<9 2<1 3<1 4<0+2", "", "0", "1 2 4", ""),
        ("0 1<9 2<1 3<2 4<0+3", "", "0", "1 2 3 4", ""),
        # There already: made by the other parent's owner.
        ("0 2<9 3<9 4<0+2", "", "0 4", "", ""),
        ("0 1 2<0+1", "1", "0 2", "", ""),
        # Several are waited for, and told in order.
        ("0 9 1<9 2<9 3<9 4<9 5<0+4 6<0+2 7<0+1 8<0+3", "", "0 9", "", "1 2 3 4"),
    ],
)
def test_children_of_an_ended_shard(
    text: str, finished: str, unfinished: str, created: str, wait_for: str
) -> None:
    planned = children_of("0", text, finished, unfinished)
    assert [row.shard_id for row in planned.create] == created.split()
    assert planned.wait_for == tuple(wait_for.split())


@pytest.mark.parametrize(
    ("listed", "leased", "created", "wait_for"),
    [
        # From before the merge, and before the other parent was there: it may come.
        (["s0", "s1"], "s0 s1", "", "s3"),
        (["s1"], "s0", "", "s3"),
        # It has come.
        (["s0", "s1"], "s0 s1 s3", "s5", ""),
        # The child has expired, and with it the parents: what came from it is listed.
        (["s6"], "s0", "s5", ""),
        # Nothing is known.
        ([], "s0", "s5", ""),
    ],
)
def test_a_listing_from_before_a_merge(
    listed: list[str], leased: str, created: str, wait_for: str
) -> None:
    """s5 came of s0 and s3, and s3 of s1."""
    child = Shard("s5", ("s0", "s3"))
    rows = [lease(s) for s in leased.split()]
    planned = plan_children(lease("s0"), [child], rows, [Shard(s) for s in listed], BEGIN)
    assert [row.shard_id for row in planned.create] == created.split()
    assert planned.wait_for == tuple(wait_for.split())


def test_children_of_somebody_else_are_refused() -> None:
    with pytest.raises(InconsistentShardsError, match="1 has ended with 2 as a child, whose"):
        plan_children(lease("1"), [Shard("2")], [], [], BEGIN)


def test_the_other_parent_of_a_merge_begins_where_the_application_did() -> None:
    """The shards on the way from there begin with their first records, once those are read."""
    planned = children_of("0", "0 1 3<1 2<0+3", "", "0")
    first, middle, child = planned.create
    assert (first.shard_id, str(first.checkpoint), first.timestamp_ms) == ("1", "LATEST", FIRST)
    assert (middle.shard_id, str(middle.checkpoint), middle.known) == ("3", "TRIM_HORIZON", ANY_AGE)
    assert (child.shard_id, child.parent_ids) == ("2", ("0", "3"))


def test_shards_that_expired_without_a_lease_are_known_by_what_came_from_them() -> None:
    missing = [lease("4", "LATEST", "2", "9"), lease("5", "LATEST", "4"), lease("6")]
    assert expired_unread(iter(missing), [lease("2")], graph("6")) == [("4", ("9",))]
    assert expired_unread(missing, [], graph("2 9 6")) == []


@pytest.mark.parametrize(
    ("text", "finished", "unfinished", "created"),
    [
        ("0 1<0 2<0", "0", "1", "2"),
        ("0 1<0 2<0", "0", "", "1 2"),
        ("0 1<0 2<0", "", "0", ""),
        ("0 1 2<0+1", "0", "1", ""),
        ("0 1 2<0+1", "0 1", "", "2"),
        ("0 1 2<0+1", "0", "", "1 2"),
        ("0 1 2<1 3<1 4<0+2", "0 1", "", "2 3"),
        ("0 1 2<1 3<1 4<0+2", "0 1 2", "3", "4"),
        ("0 1<0 2<1", "0 1 2", "", ""),
        ("0 2<9 3<9 4<0+2", "9", "0", "2 3"),
        ("0 2<9 3<2 4<0+3", "0", "", "2 3 4"),
    ],
)
def test_forgotten_children_are_found(
    text: str, finished: str, unfinished: str, created: str
) -> None:
    rows = [lease(s, SHARD_END) for s in finished.split()]
    rows += [lease(s) for s in unfinished.split()]
    found = orphaned_children(rows, graph(text), LeaseStart(TRIM_HORIZON))
    assert [row.shard_id for row in found] == created.split()
    assert {str(row.checkpoint) for row in found} <= {"TRIM_HORIZON"}
