"""Which streams have left, and whose leases go when."""

from __future__ import annotations

import pytest

from sparkinesis.lease.rules.auditor import audits
from sparkinesis.lease.rules.former_streams import (
    deletable_streams,
    left_streams,
    observe_former,
    unread_former_streams,
)
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.stream.address import StreamIdentifier
from tests.unit.lease.rules.several import lease_of

A, B, C = (StreamIdentifier("1", name, 5) for name in "abc")


def test_only_streams_that_nobody_wants_or_reads_are_former() -> None:
    leases = [lease_of(A), lease_of(B, "other"), lease_of(C, "dead")]
    dead = {leases[2].key}
    assert unread_former_streams(leases, lambda _: False, dead) == {A, C}
    assert unread_former_streams(leases, {A}.__contains__, dead) == {C}
    assert unread_former_streams(leases, lambda _: False) == {A}


def test_one_shard_that_is_read_keeps_the_stream_and_a_finished_one_does_not() -> None:
    finished = lease_of(A, "other", is_finished=True)
    assert unread_former_streams([finished], lambda _: False) == {A}
    read = lease_of(A, "other", "shardId-000000000001")
    assert unread_former_streams([read, finished], lambda _: False) == frozenset()
    assert unread_former_streams([finished, read], lambda _: False) == frozenset()


def test_the_time_counts_from_when_nobody_reads_the_stream_and_begins_anew() -> None:
    since = observe_former({}, {A}, 1.0)
    assert observe_former(since, {A, B}, 5.0) == {A: 1.0, B: 5.0}
    assert observe_former(observe_former(since, {B}, 5.0), {A}, 9.0) == {A: 9.0}


@pytest.mark.parametrize(
    ("after", "now", "expected"),
    [(None, 1e9, []), (0, 9.9, []), (0, 10.0, [A]), (30, 29.0, []), (30, 30.0, [A])],
)
def test_leases_go_after_the_wait_but_not_before_others_could_take_them(
    after: float | None, now: float, expected: list[StreamIdentifier]
) -> None:
    assert deletable_streams({A: 0.0}, now, grace=10.0, delete_after=after) == expected


def test_only_those_that_the_user_names() -> None:
    since = {A: 0.0, B: 0.0, C: 0.0}
    given = {"b", "1:c:5", "1:a:4"}
    assert deletable_streams(since, 99.0, grace=1.0, delete_after=0, only=given) == [B, C]
    assert left_streams({A: 0.0, B: 95.0}, 99.0, 10.0) == {A}


def test_each_stream_is_led_by_one_of_its_own_readers() -> None:
    a, b = lease_of(A, "x"), lease_of(B, "y")
    seen = Snapshot((a, b))
    assert audits("x", [a], seen)
    assert not audits("y", [a], seen)
    assert sum(audits(worker, [a, b], seen) for worker in "xy") == 1
    dead = Snapshot((a, b), expired=frozenset({a.key}))
    assert audits("y", [a], dead), "the owner is dead: any worker may lead"
    assert audits("y", [a], Snapshot((a, b), audits=True)), "who audits the whole table"
    assert not audits("x", [a], Snapshot((a, b), audits=False))
