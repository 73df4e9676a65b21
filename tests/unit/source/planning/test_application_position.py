"""Where a KCL application stands: by its leases, and so that no shard is skipped or read twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.application_position import (
    leases_of_stream,
    resume,
)
from sparkinesis.source.planning.batch_end import (
    Finished,
    NoRows,
    is_worth_storing,
    missing,
)
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.position import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.shard import Lineage, Shard
from tests.planners import plan, probed, to_probe

TABLE = LeaseTable("app", "eu-west-1")
ADDRESS = StreamAddress("flights", region="eu-west-1")
SPLIT = Lineage.of([Shard("p", (), False), Shard("c1", ("p",)), Shard("c2", ("p",))])
NOW = 1_790_000_000_000


def lease(
    shard: str, checkpoint: str, sub: int = 0, stream: StreamIdentifier | None = None
) -> Lease:
    return Lease(shard, shard, ExtendedSequenceNumber(checkpoint, sub), stream)


def positions(lineage: Lineage, *leases: Lease) -> dict[str, Position]:
    by_shard = {one.shard_id: one for one in leases}
    return resume(by_shard, lineage, NOW, address=ADDRESS, table=TABLE)


def test_a_checkpoint_is_a_place_inside_a_record() -> None:
    lineage = Lineage.of([Shard("a"), Shard("b"), Shard("c")])
    assert positions(
        lineage, lease("a", "77", 3), lease("b", "TRIM_HORIZON"), lease("c", "LATEST")
    ) == {"a": AfterRecord("77", None, 3), "b": TRIM_HORIZON, "c": AtTimestamp(NOW)}


def test_children_without_a_lease_are_left_to_their_parent() -> None:
    assert positions(SPLIT, lease("p", "7")) == {"p": AfterRecord("7", None, 0)}
    finished = positions(SPLIT, lease("p", "SHARD_END"))
    assert finished == {"p": SHARD_END}
    assert to_probe(finished, SPLIT, {}) == {"c1": TRIM_HORIZON, "c2": TRIM_HORIZON}


def test_leases_of_children_wait_while_their_parent_is_not_finished() -> None:
    """A KCL creates them before its application has checkpointed the parent's end."""
    children = [lease("c1", "TRIM_HORIZON"), lease("c2", "TRIM_HORIZON")]
    assert positions(SPLIT, lease("p", "7"), *children) == {"p": AfterRecord("7", None, 0)}
    assert positions(SPLIT, lease("p", "SHARD_END"), *children) == {
        "p": SHARD_END,
        "c1": TRIM_HORIZON,
        "c2": TRIM_HORIZON,
    }


def test_a_parent_whose_lease_was_cleaned_up_is_past() -> None:
    assert set(positions(SPLIT, lease("c1", "7"), lease("c2", "8"))) == {"c1", "c2"}


def test_a_shard_without_any_relative_is_read_from_its_start() -> None:
    lineage = Lineage.of([Shard("a"), *SPLIT.shards.values()])
    assert positions(lineage, lease("a", "7")) == {
        "a": AfterRecord("7", None, 0),
        "p": TRIM_HORIZON,
    }
    assert positions(SPLIT, lease("c1", "7")) == {
        "c1": AfterRecord("7", None, 0),
        "c2": TRIM_HORIZON,
    }


def test_a_shard_that_is_gone_is_missed_only_if_it_was_not_finished() -> None:
    lineage = Lineage.of([Shard("a"), Shard("child", ("done",))])
    resumed = positions(lineage, lease("a", "7"), lease("done", "SHARD_END"))
    assert resumed == {"a": AfterRecord("7", None, 0), "child": TRIM_HORIZON}
    resumed = positions(lineage, lease("a", "7"), lease("gone", "5"))
    assert missing(resumed, lineage) == ("gone",)


def test_an_instant_that_no_lease_holds_is_an_error_that_says_so() -> None:
    with pytest.raises(LeaseTableError, match=r"position of the application in c1 of .*'flights"):
        positions(SPLIT, lease("p", "SHARD_END"), lease("c1", "AT_TIMESTAMP"), lease("c2", "9"))


def test_shards_that_the_stream_never_had_are_of_another_stream() -> None:
    with pytest.raises(LeaseTableError, match=r"leases of x, y, but stream 'flights' .* has none"):
        positions(SPLIT, lease("x", "5"), lease("y", "5"))


@pytest.mark.parametrize(("checkpoint", "sub"), [("", 0), ("abc", 0), ("-5", 0), ("5", -1)])
def test_a_checkpoint_that_no_kcl_writes_is_named(checkpoint: str, sub: int) -> None:
    with pytest.raises(LeaseTableError, match="in its lease 'p', which no KCL writes"):
        positions(SPLIT, lease("p", checkpoint, sub))


def test_of_several_streams_the_leases_of_this_one_count() -> None:
    other = StreamIdentifier("123456789012", "orders", 1_700_000_000)
    leases = [lease("a", "1", stream=FLIGHTS), lease("a", "2", stream=other), lease("a", "3")]
    assert leases_of_stream(ADDRESS, leases, TABLE, alone=False) == {"a": leases[0]}
    with pytest.raises(LeaseTableError, match="of stream 'flights' in eu-west-1, only of 'orders'"):
        leases_of_stream(ADDRESS, leases[1:2], TABLE)


FLIGHTS = StreamIdentifier("123456789012", "flights", 1_700_000_000)


def test_a_stream_created_anew_has_the_newest_leases() -> None:
    anew = StreamIdentifier("123456789012", "flights", 1_700_000_001)
    leases = [lease("a", "2", stream=anew), lease("a", "1", stream=FLIGHTS)]
    assert leases_of_stream(ADDRESS, leases, TABLE) == {"a": leases[0]}


def test_an_epoch_that_is_no_time_is_told_as_it_is() -> None:
    made_up = replace(FLIGHTS, creation_epoch=10**17)
    with pytest.raises(LeaseTableError, match=r"100000000000000000 \(epoch seconds\)"):
        leases_of_stream(ADDRESS, [lease("a", "1", stream=made_up)], TABLE, present=FLIGHTS)


def test_of_a_thousand_streams_some_are_named() -> None:
    leases = [lease("a", "1", stream=replace(FLIGHTS, name=f"s{n:03}")) for n in range(1000)]
    with pytest.raises(LeaseTableError, match=r"only of 's000', .*'s009' and 990 more\. Check"):
        leases_of_stream(ADDRESS, leases, TABLE, present=FLIGHTS)


def test_streams_of_one_name_in_two_accounts_are_told_apart_by_the_arn() -> None:
    foreign = StreamIdentifier("999999999999", "flights", 1_700_000_000)
    leases = [lease("a", "1", stream=FLIGHTS), lease("a", "2", stream=foreign)]
    with pytest.raises(LeaseTableError, match="option streamARN"):
        leases_of_stream(ADDRESS, leases, TABLE)
    arn = "arn:aws:kinesis:eu-west-1:999999999999:stream/flights"
    address = StreamAddress("flights", arn, "eu-west-1")
    assert leases_of_stream(address, leases, TABLE) == {"a": leases[1]}


def test_leases_that_name_no_stream_are_not_given_to_two() -> None:
    assert set(leases_of_stream(ADDRESS, [lease("a", "1")], TABLE)) == {"a"}
    with pytest.raises(LeaseTableError, match="application that reads one stream"):
        leases_of_stream(ADDRESS, [lease("a", "1")], TABLE, alone=False)


def test_where_to_begin_is_not_forgotten_while_no_shard_is_listed() -> None:
    start: Positions = {ANY_SHARD: AtTimestamp(NOW)}
    assert not is_worth_storing(start, plan(start, Lineage.of([]), {}).end)
    planned = plan(start, Lineage.of([Shard("a")]), {"a": NoRows(NOW)})
    assert is_worth_storing(start, planned.end)


@st.composite
def lineages(draw: st.DrawFn) -> Lineage:
    """A stream of two shards, split and merged at random; its oldest shards may be gone."""
    shards = {name: Shard(name) for name in ("s0", "s1")}
    active = ["s0", "s1"]
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(active) - 1))
        is_split = len(active) < 2 or at == len(active) - 1 or draw(st.booleans())
        closed = active[at : at + (1 if is_split else 2)]
        born = [f"s{len(shards) + i}" for i in range(2 if is_split else 1)]
        for name in closed:
            shards[name] = Shard(name, shards[name].parents, False)
        shards.update({name: Shard(name, tuple(closed)) for name in born})
        active[at : at + len(closed)] = born
    oldest_first = list(shards.values())
    closed_before = next(n for n, shard in enumerate(oldest_first) if shard.is_open)
    return Lineage.of(oldest_first[draw(st.integers(0, closed_before)) :])


@given(lineages(), st.data())
def test_every_shard_is_past_or_read_once_and_after_its_parents(
    lineage: Lineage, data: st.DataObject
) -> None:
    checkpoints = st.sampled_from(["7", "TRIM_HORIZON", "SHARD_END"])
    chosen = data.draw(st.dictionaries(st.sampled_from(sorted(lineage.shards)), checkpoints))
    leases = [
        lease(shard, checkpoint)
        for shard, checkpoint in chosen.items()
        # As a KCL: no checkpoint in a shard before its parents are finished.
        if checkpoint == "TRIM_HORIZON"
        or all(chosen.get(p, "SHARD_END") == "SHARD_END" for p in lineage.ancestors((shard,)))
    ]
    if not leases:
        return
    resumed = positions(lineage, *leases)
    order = list(probed(resumed, lineage, lambda *_: Finished()))
    finished = {one.shard_id for one in leases if one.is_finished}
    past = lineage.ancestors(one.shard_id for one in leases) - {one.shard_id for one in leases}
    assert len(order) == len(set(order))
    assert not finished & set(order)
    assert set(lineage.shards) - set(order) <= finished | past
    for at, shard in enumerate(order):
        assert not lineage.ancestors((shard,)) & set(order[at:])
