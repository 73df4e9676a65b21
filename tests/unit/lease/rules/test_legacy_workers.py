"""Which workers do not know handoffs, by looks at what they renew."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

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


def processed_once(row: Lease, n: int) -> Lease:
    return processed(row, n) if n == 1 else renewed(row, n)


def late(row: Lease, n: int) -> Lease:
    """A KCL 3.x whose first record comes late: it writes a rate with the next renewal."""
    row = renewed(row, n) if n < 50 else processed(row, n)
    return replace(row, throughput_kbps=n / 1000) if n > 51 else row


def decaying(row: Lease, n: int) -> Lease:
    """It processes what it fetched long ago."""
    return replace(processed(row, n), throughput_kbps=round(0.5**n, 6))


def steady(row: Lease, n: int) -> Lease:
    return replace(processed(row, n), throughput_kbps=0.5)


def dies(row: Lease, n: int) -> Lease:
    """Another worker may have the same name tomorrow."""
    return processed(row, n) if n < 3 else row


def handed_on(row: Lease, n: int) -> Lease:
    return replace(processed(row, n), owner=f"peer {n // 5}")


def asked_for(row: Lease, n: int) -> Lease:
    row = processed(row, n)
    return replace(row, owner="me", checkpoint_owner="peer") if n >= 3 else row


def taken(row: Lease, n: int) -> Lease:
    """As a KCL 2.x leaves it that takes a lease in the middle of its handoff."""
    row = replace(processed(row, n), checkpoint_owner="peer")
    return replace(row, owner="java") if n > 1 else replace(row, owner="me")


@pytest.mark.parametrize(
    ("rate", "live", "first"),
    [
        # A failover time after its first checkpoint, if it writes no rate; or the time of five
        # renewals, if it leaves the rate of another in the row.
        (None, processed, 1 + 6),
        (None, processed_once, 1 + 6),
        (None, asked_for, 1 + 6),
        (0.25, processed, 1 + 10),
        (1e-6, processed, 1 + 10),
        # A KCL 3.x writes no rate before the first record of a shard: idle workers tell nothing.
        (None, renewed, None),
        (0.25, renewed, None),
        (None, late, None),
        (1.0, decaying, None),
        (0.0, processed, None),
        (0.25, steady, None),
        (None, dies, None),
        (None, handed_on, None),
        (0.25, taken, None),
    ],
)
def test_a_worker_whose_renewals_should_have_told_another_rate_is_an_older_one(
    rate: float | None, live: Life, first: int | None
) -> None:
    found = looks(replace(ROW, throughput_kbps=rate), live, 100)
    assert first_older(found) == first
    assert all(peers.legacy <= {"peer"} for peers in found)


@pytest.mark.parametrize("live", [late, steady])
def test_a_worker_that_once_changed_a_rate_is_never_an_older_one(live: Life) -> None:
    assert looks(replace(ROW, throughput_kbps=0.25), live, 100)[-1].modern == {"peer"}


def test_workers_without_leases_are_forgotten() -> None:
    known = looks(ROW, processed, 20)[-1]
    gone = observe_renewals(known, [replace(ROW, owner="other")], 2000.0, F)
    assert (gone.legacy, gone.modern) == (frozenset(), frozenset())
