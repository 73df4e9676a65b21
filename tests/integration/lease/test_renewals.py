"""Rounds of renewals over HTTP: what is renewed first, what is told, and what is in doubt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, LeaseTableUnavailableError, SparkinesisError
from sparkinesis.events import Event, LeaseEnded, RenewalFailed, RenewalRecovered
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Call, Fault
from tests.failing import Failing
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    by_key,
    lease,
    take,
    take_rows,
)

AT = ExtendedSequenceNumber("500")
LATER = ExtendedSequenceNumber("600")
OUTAGE = Fault.error("ServiceUnavailable", status=503)


def of(told: list[Event], *kinds: type[Event]) -> list[Event]:
    return [event for event in told if isinstance(event, kinds)]


def test_a_lease_that_is_acquired_counts_from_before_its_write(scene: Scene) -> None:
    scene.create("a")

    def slow(call: Call) -> None:
        scene.time.now += 4 * (call.operation == "UpdateItem")

    scene.server.kinesis.faults = slow
    sent = scene.time.now
    take_rows(scene.renewer, scene.table, scene.time, [scene.lease("a")], token=1_000_000)
    row = scene.lease("a")
    held = scene.renewer.held()["a"]
    assert (held.renewed_at, scene.time.now) == (sent, sent + 4)
    assert held.fencing_token == row.fencing_token
    assert held.fencing_token >= 1_000_000
    assert scene.renewer.own_writes.may_have_made(row)
    assert scene.renewer.renewed_at == sent, "as at the start"


def test_a_row_without_a_token_is_held_under_the_least(scene: Scene) -> None:
    assert scene.renewer.hold(lease("a", "me")).fencing_token == 0


def test_the_lease_that_was_renewed_the_longest_ago_comes_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = scene.acquire("a", "b", "c")
    for held in (two, one):
        scene.time.now += 1
        held.checkpoint(AT)
    sent: list[str] = []
    write = scene.renewer.batching.write

    def noted(updates: Sequence[Update]) -> list[Lease | SparkinesisError]:
        sent.extend(update.key for update in updates)
        return write(updates)

    monkeypatch.setattr(scene.renewer.batching, "write", noted)
    scene.renewer.renew_all()
    assert sent == [three.key, two.key, one.key]


def test_the_end_of_a_lease_is_told_before_a_round_that_may_take_long(scene: Scene) -> None:
    scene.acquire("a")
    scene.time.now += FAILOVER + 0.1
    scene.acquire("b")
    ended: list[int] = []
    scene.server.kinesis.faults = lambda _: ended.append(len(of(scene.told, LeaseEnded)))
    scene.renewer.renew_all()
    assert ended == [1]

    def slow(call: Call) -> Fault:
        scene.time.now += FAILOVER + 0.1
        return OUTAGE

    scene.server.kinesis.faults = slow
    scene.renewer.renew_all()
    assert len(of(scene.told, LeaseEnded)) == 2, "and that of one which expires during the round"


def test_a_failure_is_told_once_and_again_after_all_was_well(scene: Scene) -> None:
    scene.acquire("a")
    for _ in range(2):
        with scene.faults(OUTAGE):
            for _ in range(2):
                scene.time.now += 1
                scene.renewer.renew_all()
        scene.time.now += 1
        scene.renewer.renew_all()
        scene.renewer.renew_all()
    kinds = [type(event) for event in of(scene.told, RenewalFailed, RenewalRecovered)]
    assert kinds == [RenewalFailed, RenewalRecovered] * 2
    assert of(scene.told, RenewalRecovered) == [RenewalRecovered(2)] * 2


def test_a_failure_tells_how_many_of_the_leases_it_concerns(scene: Scene) -> None:
    scene.acquire("a", "b", "c")
    scene.renewer.renew_all()
    one = Fault("InternalServerError", entries=frozenset({0}))
    scene.server.kinesis.faults = Failing("BatchExecuteStatement", then=one)
    scene.renewer.renew_all()
    (failed,) = of(scene.told, RenewalFailed)
    assert isinstance(failed, RenewalFailed)
    assert (failed.leases, failed.of) == (1, 3)


def test_who_has_lost_all_its_leases_has_not_recovered(scene: Scene) -> None:
    scene.acquire("a")
    with scene.faults(OUTAGE):
        scene.renewer.renew_all()
    scene.time.now += FAILOVER + 0.1
    scene.renewer.renew_all()
    assert len(of(scene.told, RenewalFailed)) == 1
    assert of(scene.told, RenewalRecovered) == []
    take(scene.renewer, scene.table, "a")
    scene.renewer.renew_all()
    assert of(scene.told, RenewalRecovered) == [], "what has failed is another holding"


def test_a_lease_that_is_acquired_anew_during_a_round_stays_held(scene: Scene) -> None:
    (first,) = scene.acquire("a")
    row = scene.lease("a")

    def anew(call: Call) -> None:
        scene.server.kinesis.faults = None
        scene.renewer.hold(row)

    scene.server.kinesis.faults = anew
    scene.renewer.renew_all()
    assert not first.is_held()
    assert set(scene.renewer.held()) == {"a"}


def test_a_write_in_flight_is_not_waited_for(scene: Scene) -> None:
    """It renews the lease, too; and a handoff request is seen by the next scan."""
    (held,) = scene.acquire("a")
    asked = replace(held.lease, owner="thief", checkpoint_owner="me")
    update = held.begin_renewal()
    assert update is not None
    assert held.begin_renewal() is None
    held.observe(asked)
    before = held.handoff_to
    held.end_renewal()
    held.observe(asked)
    assert (before, held.handoff_to) == (None, "thief")
    scene.time.now += FAILOVER + 0.1
    assert held.begin_renewal() is None
    with pytest.raises(LeaseLostError, match="could not be renewed for 10 s"):
        held.checkpoint(AT)


def test_a_refused_renewal_of_a_lease_that_has_expired_meanwhile_is_not_sent_again(
    scene: Scene,
) -> None:
    (held,) = scene.acquire("a")
    asked = scene.table.write(requests.initiate_handoff(held.lease, "thief"))
    update = held.begin_renewal()
    assert update is not None
    refused = LeaseChangedError("refused", asked)
    again = held.settle_renewal(update, refused)
    assert again is not None
    scene.time.now += FAILOVER + 0.1
    assert held.settle_renewal(again, refused) is None
    held.end_renewal()


def test_of_two_writes_without_an_answer_the_one_in_the_row_tells_how_old_the_renewal_is(
    scene: Scene,
) -> None:
    (held,) = scene.acquire("a")
    scene.time.now += 1
    landed = scene.time.now
    for at, fault in ((AT, Fault.dropped("after")), (LATER, Fault.dropped("before"))):
        scene.server.kinesis.faults = lambda _, fault=fault: fault
        with pytest.raises(LeaseTableUnavailableError):
            held.checkpoint(at)
        scene.time.now += 3
    with scene.faults(Failing("UpdateItem", None, then=OUTAGE)):
        with pytest.raises(LeaseTableUnavailableError):
            held.checkpoint(LATER)
        assert scene.lease("a").checkpoint == AT
        assert held.renewed_at == landed
    held.checkpoint(LATER)
    assert held.renewed_at == scene.time.now
    assert held._unanswered == []


def test_a_checkpoint_at_the_same_place_renews_the_lease(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    for _ in range(2):
        before = held.lease.counter
        held.checkpoint(AT)
        assert held.lease.counter == before + 1
    assert by_key(scene.table) == [held.lease]
