"""Leases for the shards that follow, against a Kinesis and a DynamoDB over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.errors import InconsistentShardsError, LeaseLostError
from sparkinesis.events import ChildrenUnlisted, ChildrenWaiting, Event, LeasesMissing
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.moving.application_reset import StreamToReset, apply_resets, plan_resets
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.audit import find_hole
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, InitialPosition
from sparkinesis.stream.shard import Shard
from tests.integration.lease.conftest import (
    IDS,
    SYNC,
    ManualTime,
    break_row,
    ends_of,
    lease_of,
    make_stream,
    syncer_of,
    take,
)


@pytest.mark.parametrize("named", [None, StreamIdentifier("123456789012", "web", 7)])
@pytest.mark.parametrize("comes", ["lease", "nothing more"])
def test_waiting_for_the_other_parent_of_a_merge_is_cheap(
    server: LocalServer,
    table: LeaseTable,
    time: ManualTime,
    comes: str,
    named: StreamIdentifier | None,
) -> None:
    stream = make_stream(server, 2)
    stream.split(1, 2**127 + 2**126)
    stream.merge(0, 2)
    shards = stream.shards()
    keys = [lease_key(named, shard_id) for shard_id in IDS]
    new = [new_lease(one, TRIM_HORIZON).in_stream(named) for one in shards]
    for lease in new[:2]:
        table.create(lease)
    held = take(LeaseRenewer(table, "me", 10, time), table, keys[0])
    told: list[Event] = []
    ends = ends_of(syncer_of(stream.client, table, time, publish=told.append, stream=named))
    calls: Counter[str] = Counter()

    def count(call: Call) -> Fault | None:
        calls[call.operation] += 1
        return None

    server.kinesis.faults = count
    for _ in range(10):
        # The second shard is still being read; its end makes the lease of the third.
        assert not ends.create_child_leases(held, [shards[4]])
    assert (calls["Scan"], calls["ListShards"]) == (1, 1)
    assert told == [ChildrenWaiting(keys[0], IDS[0], (IDS[2],))]
    if comes == "lease":
        table.create(new[2])
    else:
        second = lease_of(table, keys[1])
        assert table.delete(second)
        assert not ends.create_child_leases(held, [shards[4]])
        time.now += SYNC.cleanup_interval
        held = LeaseRenewer(table, "me", 10, time).hold(held.lease)
    assert ends.create_child_leases(held, [shards[4]])
    assert table.get(keys[4]) is not None
    assert held.lease.child_ids == (IDS[4],)
    assert not ends._waits, "a worker of years does not keep what has ended"


@pytest.mark.parametrize("names_children", [True, False])
def test_the_end_of_a_shard_whose_children_are_stored_takes_no_call(
    server: LocalServer, table: LeaseTable, time: ManualTime, *, names_children: bool
) -> None:
    """A worker that has the shard again, for want of its last checkpoint, ends it at once."""
    stream = make_stream(server, 1)
    stream.split(0, 2**127)
    first, *children = stream.shards()
    table.create(new_lease(first, TRIM_HORIZON))
    held = take(LeaseRenewer(table, "me", 1000, time), table, IDS[0])
    ends = ends_of(syncer_of(stream.client, table, time))
    assert ends.create_child_leases(held, children)
    server.kinesis.faults = lambda _: Fault.error("AccessDeniedException")
    time.now += 500
    assert ends.create_child_leases(held, children if names_children else ())


def test_a_child_of_which_its_parents_lease_does_not_tell_gets_a_lease(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    stream = make_stream(server, 1)
    stream.split(0, 2**127)
    first, low, high = stream.shards()
    table.create(replace(new_lease(first, TRIM_HORIZON), child_ids=(low.id,)))
    held = take(LeaseRenewer(table, "me", 10, time), table, IDS[0])
    assert ends_of(syncer_of(stream.client, table, time)).create_child_leases(held, [low, high])
    assert {row.key for row in table.leases()} == set(IDS[:3])
    assert held.lease.child_ids == (low.id, high.id)


@pytest.mark.parametrize("waits", [True, False])
def test_the_end_of_a_merged_shard_makes_no_leases_that_others_ends_have_left_out(
    server: LocalServer, table: LeaseTable, time: ManualTime, *, waits: bool
) -> None:
    """Unless it waits for one; and then only if no row that it cannot read may tell more.

    The last two shards were merged, and one of them was read to its end. The row of the other is
    broken, if this end waits: it may not be finished.
    """
    stream = make_stream(server, 4)
    if waits:
        stream.split(1, 3 * 2**125)  # the second shard is read still
    stream.merge(0, 4 if waits else 1)
    stream.merge(2, 3)
    shards = stream.shards()
    child = shards[-2]
    for one in shards[:4]:
        table.create(new_lease(one, TRIM_HORIZON))
    for number in (2, 3):
        other = take(LeaseRenewer(table, "other", 10, time), table, IDS[number])
        if number == 2 or not waits:
            other.checkpoint(ExtendedSequenceNumber(SHARD_END))
    if waits:
        break_row(table, server.client("dynamodb"), IDS[3])
    held = take(LeaseRenewer(table, "me", 10, time), table, IDS[0])
    ends = ends_of(syncer_of(stream.client, table, time))
    assert ends.create_child_leases(held, [child]) is not waits
    made = {row.key for row in table.scan(consistent=True).leases}.difference(IDS[:4])
    assert made == (set() if waits else {child.id})


def test_a_merge_does_not_wait_for_a_lease_that_was_deleted(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    """The merged shard's lease is there, so that no audit misses that of the other parent."""
    stream = make_stream(server, 1)
    stream.split(0, 2**127)
    stream.merge(1, 2)
    shards = stream.shards()
    for one in (0, 1, 3):
        table.create(new_lease(shards[one], TRIM_HORIZON))
    ends = ends_of(syncer_of(stream.client, table, time))

    def hold(shard_id: str) -> HeldLease:
        return take(LeaseRenewer(table, "me", 10, time), table, shard_id)

    root, held = hold(IDS[0]), hold(IDS[1])
    assert not ends.create_child_leases(held, [shards[3]])
    assert table.get(IDS[2]) is None, "the first shard may still make it"
    root.checkpoint(ExtendedSequenceNumber(SHARD_END))
    time.now += SYNC.cleanup_interval
    held = hold(IDS[1])
    assert not ends.create_child_leases(held, [shards[3]])
    assert table.get(IDS[2]) is not None
    assert ends.create_child_leases(held, [shards[3]])
    assert held.lease.child_ids == (IDS[3],)


def test_the_end_of_a_shard_that_a_hand_has_moved_creates_no_leases(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    """The worker does not know the move yet. The child would begin before the new position."""
    stream = make_stream(server, 1)
    stream.split(0, 2**127)
    shards = stream.shards()
    table.create(new_lease(shards[0], TRIM_HORIZON))
    held = take(LeaseRenewer(table, "me", 10, time), table, IDS[0])
    apply_resets(table, plan_resets([StreamToReset(stream.client)], table, LATEST))
    moved = table.leases()
    ends = ends_of(syncer_of(stream.client, table, time))
    with pytest.raises(LeaseLostError, match="create the children's leases"):
        ends.create_child_leases(held, shards[1:])
    assert table.leases() == moved


@pytest.mark.parametrize("broken", [2, 1], ids=["another", "the other parent's"])
def test_a_broken_lease_keeps_no_merge_from_ending(
    server: LocalServer, table: LeaseTable, time: ManualTime, broken: int
) -> None:
    """What follows a shard whose row is broken waits, and nothing else does."""
    stream = make_stream(server, 3)
    stream.merge(0, 1)
    shards = stream.shards()
    for one in shards[:3]:
        table.create(new_lease(one, TRIM_HORIZON))
    break_row(table, server.client("dynamodb"), IDS[broken])
    held = take(LeaseRenewer(table, "me", 10, time), table, IDS[0])
    ends = ends_of(syncer_of(stream.client, table, time))
    assert ends.create_child_leases(held, [shards[3]])
    child = lease_of(table, IDS[3])
    assert child.parent_ids == (IDS[0], IDS[1])
    assert held.lease.child_ids == (IDS[3],)


def test_a_merge_does_not_wait_for_a_lease_that_is_there_and_cannot_be_read(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    """The other parent came from a shard that is still read, as far as the table tells."""
    stream = make_stream(server, 2)
    stream.split(1, 2**127 + 2**126)
    stream.merge(0, 2)
    shards = stream.shards()
    for one in shards[:4]:
        table.create(new_lease(one, TRIM_HORIZON))
    break_row(table, server.client("dynamodb"), IDS[2])
    held = take(LeaseRenewer(table, "me", 10, time), table, IDS[0])
    assert ends_of(syncer_of(stream.client, table, time)).create_child_leases(held, [shards[4]])
    assert lease_of(table, IDS[4]).parent_ids == (IDS[0], IDS[2])


@dataclass
class Ended:
    """A stream of 2 shards, split into 4 by now, whose first two are held by one worker."""

    ends: ShardEnds
    held: list[HeldLease]
    listed: list[float]
    """When ListShards was called."""
    address: StreamAddress
    told: list[Event]

    def create_child_leases(self) -> list[bool]:
        """None of the shards has named its children."""
        return [self.ends.create_child_leases(one, ()) for one in self.held]


def ended_shards(
    server: LocalServer, table: LeaseTable, time: ManualTime, lagging: Callable[[], bool]
) -> Ended:
    stream = make_stream(server, 2)
    before = stream.shards()
    stream.split(0, 2**126)
    stream.split(1, 2**127 + 2**126)
    renewer = LeaseRenewer(table, "me", 1000, time)
    for shard in before:
        table.create(new_lease(shard, TRIM_HORIZON))
    held = [take(renewer, table, shard.id) for shard in before]
    listed: list[float] = []
    list_shards = stream.client.list_shards

    class Lagging(StreamClient):
        """ListShards lags behind the reshard."""

        def list_shards(self, *given: Any, **named: Any) -> Any:
            listed.append(time.now)
            shards, now_ms = list_shards(*given, **named)
            return (before if lagging() else shards), now_ms

    told: list[Event] = []
    address = stream.client.address
    ends = ends_of(syncer_of(Lagging(address), table, time, publish=told.append))
    return Ended(ends, held, listed, address, told)


def test_children_that_no_end_has_named_are_listed_by_one_call(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    ended = ended_shards(server, table, time, lagging=lambda: False)
    assert ended.create_child_leases() == [True, True]
    assert ended.listed == [1000.0]
    leased = {lease.key: lease for lease in table.leases()}
    assert sorted(leased) == IDS
    for one in ended.held:
        assert [leased[child].parent_ids for child in one.lease.child_ids] == [(one.key,)] * 2
    assert not ended.ends._unlisted, "a worker of years does not keep what has ended"


@pytest.mark.parametrize(("later", "calls"), [(2.0, 1), (2.5, 2)])
def test_a_listing_of_two_seconds_ago_may_show_the_end_of_a_shard(
    server: LocalServer, table: LeaseTable, time: ManualTime, later: float, calls: int
) -> None:
    """An older one is not asked: it would be from before the end, most likely."""
    ended = ended_shards(server, table, time, lagging=lambda: False)
    first, second = ended.held
    assert ended.ends.create_child_leases(first, ())
    time.now += later
    assert ended.ends.create_child_leases(second, ())
    assert len(ended.listed) == calls


def test_a_listing_that_has_failed_is_made_again_after_a_second(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    def fails() -> bool:
        if time.now == 1000:
            raise InconsistentShardsError("for now")
        return False

    ended = ended_shards(server, table, time, fails)
    with pytest.raises(InconsistentShardsError):
        ended.create_child_leases()
    time.now += 0.5
    assert ended.create_child_leases() == [False, False]
    time.now += 0.5
    assert ended.create_child_leases() == [True, True]
    assert ended.listed == [1000, 1001]


def test_a_listing_that_lags_behind_is_asked_for_again_and_again_ever_more_seldom(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    ended = ended_shards(server, table, time, lagging=lambda: time.now < 1100)
    while not all(ended.create_child_leases()):
        assert {lease.key for lease in table.leases()} == {one.key for one in ended.held}
        time.now += 0.5  # as a consumer asks
    assert [round(at - 1000) for at in ended.listed] == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    assert [one for one in ended.told if isinstance(one, ChildrenUnlisted)] == [
        ChildrenUnlisted(one.key, one.shard_id, ended.address.name, str(ended.address), 61.0)
        for one in ended.held
    ]
    assert len(table.leases()) == 6


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([59.5], []),
        ([60], [60]),
        # As after a call of the record processor, or a while in which ListShards failed.
        ([60, 62, 66, 74], [60]),
        ([1, 3, 7, 15, 31, 95, 130], [95]),
    ],
)
def test_children_that_are_not_listed_are_told_once_whenever_the_consumer_comes_by(
    server: LocalServer, table: LeaseTable, time: ManualTime, asked: list[float], told: list[float]
) -> None:
    ended = ended_shards(server, table, time, lagging=lambda: True)
    named = StreamIdentifier("123456789012", ended.address.name, 7)
    lease = new_lease(Shard(IDS[0], (), True, (0, 2**127 - 1)), TRIM_HORIZON).in_stream(named)
    table.create(lease)
    held = take(LeaseRenewer(table, "me", 1000, time), table, lease.key)
    for seconds in (0, *asked):
        time.now = 1000 + seconds
        assert not ended.ends.create_child_leases(held, ())
    address = ended.address
    assert ended.told == [
        ChildrenUnlisted(lease.key, IDS[0], address.name, str(address), waited) for waited in told
    ]


def test_a_shard_whose_children_have_all_expired_is_done(
    server: LocalServer, table: LeaseTable, time: ManualTime
) -> None:
    """As one that nobody has read for longer than the stream keeps records."""
    ended = ended_shards(server, table, time, lagging=lambda: False)
    gone = new_lease(Shard("shardId-0", (), False, (0, 2**128 - 1)), TRIM_HORIZON)
    table.create(gone)
    held = take(LeaseRenewer(table, "me", 1000, time), table, gone.key)
    assert ended.ends.create_child_leases(held, ())
    assert held.lease.child_ids == ()


@pytest.mark.parametrize("initial", [LATEST, TRIM_HORIZON])
def test_a_lease_that_tells_when_the_application_began_stays_until_an_audit_has_read_it(
    server: LocalServer, table: LeaseTable, time: ManualTime, initial: InitialPosition
) -> None:
    """All shards between that lease's and the present ones expired while no worker ran."""
    stream = make_stream(server, 2)
    began_ms = stream.client.list_shards()[1] - 40 * 3_600_000
    gone = new_lease(Shard("shardId-gone", (), False, (0, 2**128 - 1)), initial, made_ms=began_ms)
    application_ms = began_ms if initial is LATEST else None
    finished = replace(
        gone,
        checkpoint=ExtendedSequenceNumber(SHARD_END),
        application_ms=application_ms,
        child_ids=("shardId-lost",),
    )
    shard_syncer = syncer_of(stream.client, table, time, initial=initial)
    table.create(replace(finished, mark=shard_syncer._leases.identify()))

    def step(*deleted: Lease) -> dict[str, Lease]:
        """``deleted``: leases that the worker's last scan still showed."""
        time.now += SYNC.cleanup_interval
        shard_syncer.step([*table.leases(), *deleted], audits=True)
        return {lease.key: lease for lease in table.leases()}

    assert set(step(replace(gone, key="another", shard_id="another"))) == {finished.key}
    while len(leases := step()) == 1:
        assert set(leases) == {finished.key}
    assert time.now == 1000 + SYNC.audit_interval * SYNC.audit_confidence
    made = {key: lease for key, lease in leases.items() if key != finished.key}
    assert len(made) == 2
    for lease in made.values():
        if initial is LATEST:
            assert (lease.timestamp_ms, lease.application_ms) == (began_ms, began_ms)
        else:
            assert (lease.made_ms, lease.known) == (began_ms, None)
    assert set(step()) == set(made), "nobody needs the finished lease any more"


class Holed(StreamClient):
    """A client that does not see the first shard: the listed shards leave a hole."""

    def list_shards(self, *given: Any, **more: Any) -> tuple[list[Shard], int]:
        shards, now_ms = super().list_shards(*given, **more)
        return shards[1:], now_ms


@pytest.mark.parametrize(
    ("stream", "begin"),
    [
        (None, "The listed shards do not tile"),
        (
            StreamIdentifier("123456789012", "flights", 1_763_700_000),
            "Stream 123456789012:flights:1763700000: The listed shards do not tile",
        ),
    ],
)
def test_with_several_streams_an_error_of_the_listing_names_the_stream(
    server: LocalServer,
    table: LeaseTable,
    time: ManualTime,
    stream: StreamIdentifier | None,
    begin: str,
) -> None:
    client = Holed(make_stream(server, 2).client.address)
    syncer = syncer_of(client, table, time, stream=stream)
    time.now += 2 * SYNC.audit_interval
    with pytest.raises(InconsistentShardsError, match=f"^{begin}"):
        syncer.step([], audits=True)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_missing_lease_is_told_and_made_once_audits_in_a_row_have_missed_it(
    server: LocalServer, table: LeaseTable, time: ManualTime, *, is_named: bool
) -> None:
    stream = make_stream(server, 2)
    named = StreamIdentifier("123456789012", stream.name, 7) if is_named else None
    told: list[Event] = []
    syncer = syncer_of(stream.client, table, time, stream=named, publish=told.append)
    known = new_lease(stream.shards()[0], TRIM_HORIZON).in_stream(named)
    table.create(known)
    missing = LeasesMissing(str(table), str(named) if named else None, str(find_hole([known])))
    for audits in range(1, 2 * SYNC.audit_confidence + 1):
        time.now += SYNC.audit_interval
        syncer.step([known], audits=True)
        is_made = table.get(lease_key(named, IDS[1])) is not None
        assert is_made is (audits >= SYNC.audit_confidence)
        found = [one for one in told if isinstance(one, LeasesMissing)]
        assert found == [missing] * (audits // SYNC.audit_confidence)


@pytest.mark.parametrize("rows", [[0], [0, 1]])
def test_a_start_writes_nothing_beside_a_row_that_it_cannot_read(
    server: LocalServer, table: LeaseTable, time: ManualTime, rows: list[int]
) -> None:
    """The row may be that of any shard."""
    stream = make_stream(server, 3)
    named = StreamIdentifier("123456789012", stream.name, 7)
    for number in rows:
        table.create(new_lease(stream.shards()[number], TRIM_HORIZON).in_stream(named))
    break_row(table, server.client("dynamodb"), lease_key(named, IDS[0]))
    before = table.scan(consistent=True)
    syncer_of(stream.client, table, time, stream=named).sync()
    after = table.scan(consistent=True)
    assert (after.leases, after.broken) == (before.leases, before.broken)


@pytest.mark.parametrize("parents_first", [True, False])
def test_children_begin_beside_their_parents_only_where_their_order_is_no_matter(
    server: LocalServer, table: LeaseTable, time: ManualTime, *, parents_first: bool
) -> None:
    stream = make_stream(server, 1)
    table.create(new_lease(stream.shards()[0], TRIM_HORIZON))
    settings = replace(SYNC, parents_first=parents_first)

    def syncer() -> ShardSyncer:
        made = syncer_of(stream.client, table, time, settings=settings)
        made._leases.identify()
        return made

    def leased() -> list[str]:
        return sorted(row.key for row in table.leases())

    stream.split(0, 2**127)
    syncer().sync()
    assert leased() == IDS[: 1 if parents_first else 3]
    running = syncer()
    stream.split(1, 2**126)
    time.now += SYNC.audit_interval
    running.step(table.leases(), audits=True)
    assert leased() == IDS[: 1 if parents_first else 5]
