"""Leases for the shards that follow, against a Kinesis and a DynamoDB over HTTP."""

from __future__ import annotations

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
from sparkinesis.local import Fault
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, InitialPosition
from sparkinesis.stream.shard import Shard
from tests.integration.lease.conftest import IDS, SYNC, Scene, leased, take


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("comes", ["lease", "nothing more"])
def test_waiting_for_the_other_parent_of_a_merge_is_cheap(
    scene: Scene, comes: str, *, is_named: bool
) -> None:
    stream = leased(scene, 2, is_named=is_named)
    stream.split(1, 2**127 + 2**126)
    stream.merge(0, 2)
    child = stream.shards()[4]
    keys = [lease_key(stream.id, shard_id) for shard_id in IDS]
    stream.create(0, 1)
    held = stream.hold(0)
    told: list[Event] = []
    ends = stream.ends(publish=told.append)
    scene.server.kinesis.calls.clear()
    for _ in range(10):
        # The second shard is still being read; its end makes the lease of the third.
        assert not ends.create_child_leases(held, [child])
    calls = scene.server.kinesis.calls
    assert (calls.count("Scan"), calls.count("ListShards")) == (1, 1)
    assert told == [ChildrenWaiting(keys[0], IDS[0], (IDS[2],))]
    if comes == "lease":
        stream.create(2)
    else:
        assert scene.table.delete(scene.lease(keys[1]))
        assert not ends.create_child_leases(held, [child])
        scene.time.now += SYNC.cleanup_interval
        held = LeaseRenewer(scene.table, "me", 10, scene.time).hold(held.lease)
    assert ends.create_child_leases(held, [child])
    assert scene.table.get(keys[4]) is not None
    assert held.lease.child_ids == (IDS[4],)
    assert not ends._waits, "a worker of years does not keep what has ended"


@pytest.mark.parametrize("names_children", [True, False])
def test_the_end_of_a_shard_whose_children_are_stored_takes_no_call(
    scene: Scene, *, names_children: bool
) -> None:
    """A worker that has the shard again, for want of its last checkpoint, ends it at once."""
    stream = leased(scene, 1)
    stream.split(0, 2**127)
    children = stream.shards()[1:]
    stream.create(0)
    held, ends = stream.hold(0), stream.ends()
    assert ends.create_child_leases(held, children)
    with scene.faults(Fault.error("AccessDeniedException")):
        scene.time.now += 500
        assert ends.create_child_leases(held, children if names_children else ())


def test_a_child_of_which_its_parents_lease_does_not_tell_gets_a_lease(scene: Scene) -> None:
    stream = leased(scene, 1)
    stream.split(0, 2**127)
    scene.table.create(replace(stream.lease(0), child_ids=(IDS[1],)))
    held = stream.hold(0)
    assert stream.ends().create_child_leases(held, stream.shards()[1:])
    assert {row.key for row in scene.table.leases()} == set(IDS[:3])
    assert held.lease.child_ids == (IDS[1], IDS[2])


@pytest.mark.parametrize("waits", [True, False])
def test_the_end_of_a_merged_shard_makes_no_leases_that_others_ends_have_left_out(
    scene: Scene, *, waits: bool
) -> None:
    """Unless it waits for one; and then only if no row that it cannot read may tell more.

    The last two shards were merged, and one of them was read to its end. The row of the other is
    broken, if this end waits: it may not be finished.
    """
    stream = leased(scene, 4)
    if waits:
        stream.split(1, 3 * 2**125)  # the second shard is read still
    stream.merge(0, 4 if waits else 1)
    stream.merge(2, 3)
    child = stream.shards()[-2]
    stream.create(0, 1, 2, 3)
    for number in (2, 3):
        other = stream.hold(number, "other")
        if number == 2 or not waits:
            other.checkpoint(ExtendedSequenceNumber(SHARD_END))
    if waits:
        stream.break_row(3)
    assert stream.ends().create_child_leases(stream.hold(0), [child]) is not waits
    made = {row.key for row in scene.table.scan(consistent=True).leases}.difference(IDS[:4])
    assert made == (set() if waits else {child.id})


def test_a_merge_does_not_wait_for_a_lease_that_was_deleted(scene: Scene) -> None:
    """The merged shard's lease is there, so that no audit misses that of the other parent."""
    stream = leased(scene, 1)
    stream.split(0, 2**127)
    stream.merge(1, 2)
    merged = stream.shards()[3]
    stream.create(0, 1, 3)
    ends, root, held = stream.ends(), stream.hold(0), stream.hold(1)
    assert not ends.create_child_leases(held, [merged])
    assert scene.table.get(IDS[2]) is None, "the first shard may still make it"
    root.checkpoint(ExtendedSequenceNumber(SHARD_END))
    scene.time.now += SYNC.cleanup_interval
    assert not ends.create_child_leases(held, [merged])
    assert scene.table.get(IDS[2]) is not None
    assert ends.create_child_leases(held, [merged])
    assert held.lease.child_ids == (IDS[3],)


def test_the_end_of_a_shard_that_a_hand_has_moved_creates_no_leases(scene: Scene) -> None:
    """The worker does not know the move yet. The child would begin before the new position."""
    stream = leased(scene, 1)
    stream.split(0, 2**127)
    stream.create(0)
    held = stream.hold(0)
    apply_resets(scene.table, plan_resets([StreamToReset(stream.client)], scene.table, LATEST))
    moved = scene.table.leases()
    with pytest.raises(LeaseLostError, match="create the children's leases"):
        stream.ends().create_child_leases(held, stream.shards()[1:])
    assert scene.table.leases() == moved


@pytest.mark.parametrize("broken", [2, 1], ids=["another", "the other parent's"])
def test_a_broken_lease_keeps_no_merge_from_ending(scene: Scene, broken: int) -> None:
    """What follows a shard whose row is broken waits, and nothing else does."""
    stream = leased(scene, 3)
    stream.merge(0, 1)
    stream.create(0, 1, 2)
    stream.break_row(broken)
    held = stream.hold(0)
    assert stream.ends().create_child_leases(held, [stream.shards()[3]])
    assert scene.lease(IDS[3]).parent_ids == (IDS[0], IDS[1])
    assert held.lease.child_ids == (IDS[3],)


def test_a_merge_does_not_wait_for_a_lease_that_is_there_and_cannot_be_read(scene: Scene) -> None:
    """The other parent came from a shard that is still read, as far as the table tells."""
    stream = leased(scene, 2)
    stream.split(1, 2**127 + 2**126)
    stream.merge(0, 2)
    stream.create(0, 1, 2, 3)
    stream.break_row(2)
    assert stream.ends().create_child_leases(stream.hold(0), [stream.shards()[4]])
    assert scene.lease(IDS[4]).parent_ids == (IDS[0], IDS[2])


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


def ended_shards(scene: Scene, lagging: Callable[[], bool] = lambda: False) -> Ended:
    stream = leased(scene, 2)
    before = stream.shards()
    stream.create(0, 1)
    stream.split(0, 2**126)
    stream.split(1, 2**127 + 2**126)
    held = [stream.hold(number) for number in (0, 1)]
    listed: list[float] = []
    list_shards = stream.client.list_shards

    class Lagging(StreamClient):
        """ListShards lags behind the reshard."""

        def list_shards(self, *given: Any, **named: Any) -> Any:
            listed.append(scene.time.now)
            shards, now_ms = list_shards(*given, **named)
            return (before if lagging() else shards), now_ms

    told: list[Event] = []
    address = stream.client.address
    stream.client = Lagging(address)
    return Ended(stream.ends(publish=told.append), held, listed, address, told)


def test_children_that_no_end_has_named_are_listed_by_one_call(scene: Scene) -> None:
    ended = ended_shards(scene)
    assert ended.create_child_leases() == [True, True]
    assert ended.listed == [1000.0]
    leased = {lease.key: lease for lease in scene.table.leases()}
    assert sorted(leased) == IDS
    for one in ended.held:
        assert [leased[child].parent_ids for child in one.lease.child_ids] == [(one.key,)] * 2
    assert not ended.ends._unlisted, "a worker of years does not keep what has ended"


@pytest.mark.parametrize(("later", "calls"), [(2.0, 1), (2.5, 2)])
def test_a_listing_of_two_seconds_ago_may_show_the_end_of_a_shard(
    scene: Scene, later: float, calls: int
) -> None:
    """An older one is not asked: it would be from before the end, most likely."""
    ended = ended_shards(scene)
    first, second = ended.held
    assert ended.ends.create_child_leases(first, ())
    scene.time.now += later
    assert ended.ends.create_child_leases(second, ())
    assert len(ended.listed) == calls


def test_a_listing_that_has_failed_is_made_again_after_a_second(scene: Scene) -> None:
    def fails() -> bool:
        if scene.time.now == 1000:
            raise InconsistentShardsError("for now")
        return False

    ended = ended_shards(scene, fails)
    with pytest.raises(InconsistentShardsError):
        ended.create_child_leases()
    scene.time.now += 0.5
    assert ended.create_child_leases() == [False, False]
    scene.time.now += 0.5
    assert ended.create_child_leases() == [True, True]
    assert ended.listed == [1000, 1001]


def test_a_listing_that_lags_behind_is_asked_for_again_and_again_ever_more_seldom(
    scene: Scene,
) -> None:
    ended = ended_shards(scene, lagging=lambda: scene.time.now < 1100)
    while not all(ended.create_child_leases()):
        assert {lease.key for lease in scene.table.leases()} == {one.key for one in ended.held}
        scene.time.now += 0.5  # as a consumer asks
    assert [round(at - 1000) for at in ended.listed] == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    assert [one for one in ended.told if isinstance(one, ChildrenUnlisted)] == [
        ChildrenUnlisted(one.key, one.shard_id, ended.address.name, str(ended.address), 61.0)
        for one in ended.held
    ]
    assert len(scene.table.leases()) == 6


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
    scene: Scene, asked: list[float], told: list[float]
) -> None:
    ended = ended_shards(scene, lagging=lambda: True)
    named = StreamIdentifier("123456789012", ended.address.name, 7)
    lease = new_lease(Shard(IDS[0], (), True, (0, 2**127 - 1)), TRIM_HORIZON).in_stream(named)
    scene.table.create(lease)
    held = take(LeaseRenewer(scene.table, "me", 1000, scene.time), scene.table, lease.key)
    for seconds in (0, *asked):
        scene.time.now = 1000 + seconds
        assert not ended.ends.create_child_leases(held, ())
    address = ended.address
    assert ended.told == [
        ChildrenUnlisted(lease.key, IDS[0], address.name, str(address), waited) for waited in told
    ]


def test_a_shard_whose_children_have_all_expired_is_done(scene: Scene) -> None:
    """As one that nobody has read for longer than the stream keeps records."""
    ended = ended_shards(scene)
    gone = new_lease(Shard("shardId-0", (), False, (0, 2**128 - 1)), TRIM_HORIZON)
    scene.table.create(gone)
    held = take(LeaseRenewer(scene.table, "me", 1000, scene.time), scene.table, gone.key)
    assert ended.ends.create_child_leases(held, ())
    assert held.lease.child_ids == ()


@pytest.mark.parametrize("initial", [LATEST, TRIM_HORIZON])
def test_a_lease_that_tells_when_the_application_began_stays_until_an_audit_has_read_it(
    scene: Scene, initial: InitialPosition
) -> None:
    """All shards between that lease's and the present ones expired while no worker ran."""
    stream = leased(scene, 2)
    began_ms = stream.client.list_shards()[1] - 40 * 3_600_000
    gone = new_lease(Shard("shardId-gone", (), False, (0, 2**128 - 1)), initial, made_ms=began_ms)
    application_ms = began_ms if initial is LATEST else None
    finished = replace(
        gone,
        checkpoint=ExtendedSequenceNumber(SHARD_END),
        application_ms=application_ms,
        child_ids=("shardId-lost",),
    )
    shard_syncer = stream.syncer(initial=initial)
    scene.table.create(replace(finished, mark=shard_syncer._leases.identify()))

    def step(*deleted: Lease) -> dict[str, Lease]:
        """``deleted``: leases that the worker's last scan still showed."""
        scene.time.now += SYNC.cleanup_interval
        shard_syncer.step([*scene.table.leases(), *deleted], audits=True)
        return {lease.key: lease for lease in scene.table.leases()}

    assert set(step(replace(gone, key="another", shard_id="another"))) == {finished.key}
    while len(leases := step()) == 1:
        assert set(leases) == {finished.key}
    assert scene.time.now == 1000 + SYNC.audit_interval * SYNC.audit_confidence
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


@pytest.mark.parametrize("is_named", [False, True])
def test_with_several_streams_an_error_of_the_listing_names_the_stream(
    scene: Scene, *, is_named: bool
) -> None:
    stream = leased(scene, 2, is_named=is_named)
    stream.client = Holed(stream.client.address)
    syncer = stream.syncer()
    begin = f"Stream {stream.id}: The listed" if is_named else "The listed"
    scene.time.now += 2 * SYNC.audit_interval
    with pytest.raises(InconsistentShardsError, match=f"^{begin} shards do not tile"):
        syncer.step([], audits=True)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_missing_lease_is_told_and_made_once_audits_in_a_row_have_missed_it(
    scene: Scene, *, is_named: bool
) -> None:
    stream = leased(scene, 2, is_named=is_named)
    told: list[Event] = []
    syncer, known, named = stream.syncer(publish=told.append), stream.lease(0), stream.id
    scene.table.create(known)
    missing = LeasesMissing(
        str(scene.table), str(named) if named else None, str(find_hole([known]))
    )
    for audits in range(1, 2 * SYNC.audit_confidence + 1):
        scene.time.now += SYNC.audit_interval
        syncer.step([known], audits=True)
        is_made = scene.table.get(lease_key(named, IDS[1])) is not None
        assert is_made is (audits >= SYNC.audit_confidence)
        found = [one for one in told if isinstance(one, LeasesMissing)]
        assert found == [missing] * (audits // SYNC.audit_confidence)


@pytest.mark.parametrize("rows", [[0], [0, 1]])
def test_a_start_writes_nothing_beside_a_row_that_it_cannot_read(
    scene: Scene, rows: list[int]
) -> None:
    """The row may be that of any shard."""
    stream = leased(scene, 3, is_named=True)
    stream.create(*rows)
    stream.break_row(0)
    before = scene.table.scan(consistent=True)
    stream.syncer().sync()
    after = scene.table.scan(consistent=True)
    assert (after.leases, after.broken) == (before.leases, before.broken)


@pytest.mark.parametrize("parents_first", [True, False])
def test_children_begin_beside_their_parents_only_where_their_order_is_no_matter(
    scene: Scene, *, parents_first: bool
) -> None:
    stream = leased(scene, 1)
    stream.create(0)
    settings = replace(SYNC, parents_first=parents_first)

    def syncer() -> ShardSyncer:
        made = stream.syncer(settings=settings)
        made._leases.identify()
        return made

    def keys() -> list[str]:
        return sorted(row.key for row in scene.table.leases())

    stream.split(0, 2**127)
    syncer().sync()
    assert keys() == IDS[: 1 if parents_first else 3]
    running = syncer()
    stream.split(1, 2**126)
    scene.time.now += SYNC.audit_interval
    running.step(scene.table.leases(), audits=True)
    assert keys() == IDS[: 1 if parents_first else 5]
