"""Which workers do not know handoffs, by looks at what they renew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.legacy_workers import WorkerVersions, observe_renewals

F = 9.0
LOOK = F / 6
ROW = Lease("s", "s", ExtendedSequenceNumber("TRIM_HORIZON"), owner="peer", counter=1)
Life = Callable[[Lease, int], Lease]
"""The row at the next look, by its number."""


def renewed(row: Lease, n: int) -> Lease:
    """A renewal comes before each second look."""
    return replace(row, counter=row.counter + n % 2)


def processed(row: Lease, n: int) -> Lease:
    at = ExtendedSequenceNumber(str(100 + n))
    return replace(renewed(row, n), checkpoint=at, counter=row.counter + 3)


def looks(
    row: Lease, live: Life, count: int, known: WorkerVersions | None = None
) -> list[WorkerVersions]:
    found, now = [], 1000.0
    peers = observe_renewals(known or WorkerVersions(), [row], now, F)
    for n in range(1, count + 1):
        row, now = live(row, n), now + LOOK
        peers = observe_renewals(peers, [row], now, F)
        found.append(peers)
    return found


def first_older(found: Iterable[WorkerVersions]) -> int | None:
    """At which look, from 1, the peer was taken for an older worker."""
    return next((n for n, peers in enumerate(found, 1) if peers.legacy), None)


def test_a_worker_that_processes_and_writes_no_rate_is_an_older_one() -> None:
    found = looks(ROW, processed, 20)
    assert first_older(found) == 1 + 6, "a failover time after its first checkpoint"
    assert found[-1].legacy == {"peer"}


@pytest.mark.parametrize("rate", [0.25, 1e-6])
def test_a_worker_that_leaves_the_rate_of_another_in_the_row_is_an_older_one(rate: float) -> None:
    found = looks(replace(ROW, throughput_kbps=rate), processed, 20)
    assert first_older(found) == 1 + 10, "the time of five renewals after its first checkpoint"


def test_one_checkpoint_is_enough_where_renewals_follow() -> None:
    def once(row: Lease, n: int) -> Lease:
        return processed(row, n) if n == 1 else renewed(row, n)

    assert first_older(looks(ROW, once, 30)) == 1 + 6


def test_idle_workers_tell_nothing() -> None:
    """A KCL 3.x writes no rate before the first record of a shard."""
    assert first_older(looks(ROW, renewed, 100)) is None
    assert first_older(looks(replace(ROW, throughput_kbps=0.25), renewed, 100)) is None


def test_a_worker_whose_first_record_comes_late_has_the_time_to_write_a_rate() -> None:
    def late(row: Lease, n: int) -> Lease:
        row = renewed(row, n) if n < 50 else processed(row, n)
        # A KCL 3.x: with the next renewal.
        return replace(row, throughput_kbps=n / 1000) if n > 51 else row

    found = looks(ROW, late, 100)
    assert first_older(found) is None
    assert found[-1].modern == {"peer"}


def test_a_worker_that_fetched_long_ago_what_it_processes_is_no_older_one() -> None:
    def decaying(row: Lease, n: int) -> Lease:
        return replace(processed(row, n), throughput_kbps=round(0.5**n, 6))

    assert first_older(looks(replace(ROW, throughput_kbps=1.0), decaying, 100)) is None
    assert first_older(looks(replace(ROW, throughput_kbps=0.0), processed, 100)) is None


def test_a_worker_that_once_changed_a_rate_is_never_an_older_one() -> None:
    def steady(row: Lease, n: int) -> Lease:
        return replace(processed(row, n), throughput_kbps=0.5)

    found = looks(replace(ROW, throughput_kbps=0.25), steady, 40)
    assert first_older(found) is None
    assert found[0].modern == {"peer"}


def test_a_worker_that_does_not_renew_is_no_older_one() -> None:
    """It dies behind a checkpoint: another worker may have the same name tomorrow."""

    def dies(row: Lease, n: int) -> Lease:
        return processed(row, n) if n < 3 else row

    assert first_older(looks(ROW, dies, 40)) is None


def test_each_owner_is_watched_anew() -> None:
    def shared(row: Lease, n: int) -> Lease:
        return replace(processed(row, n), owner=f"peer {n // 5}")

    assert first_older(looks(ROW, shared, 60)) is None


def test_a_handoff_that_is_ignored_goes_on_telling_of_the_owner() -> None:
    def asked_for(row: Lease, n: int) -> Lease:
        row = processed(row, n)
        return replace(row, owner="me", checkpoint_owner="peer") if n >= 3 else row

    found = looks(ROW, asked_for, 20)
    assert first_older(found) == 1 + 6
    assert found[-1].legacy == {"peer"}


def test_a_taken_lease_with_the_handoff_of_another_left_in_it_tells_of_nobody() -> None:
    """As a KCL 2.x leaves it that takes a lease in the middle of its handoff."""

    def taken(row: Lease, n: int) -> Lease:
        row = replace(processed(row, n), checkpoint_owner="peer")
        return replace(row, owner="java") if n > 1 else replace(row, owner="me")

    assert first_older(looks(replace(ROW, throughput_kbps=0.25), taken, 40)) is None


def test_workers_without_leases_are_forgotten() -> None:
    known = looks(ROW, processed, 20)[-1]
    gone = observe_renewals(known, [replace(ROW, owner="other")], 2000.0, F)
    assert (gone.legacy, gone.modern) == (frozenset(), frozenset())
