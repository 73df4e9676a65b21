"""What other workers are: signs of a Java KCL, and of workers that know no handoffs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.rules.other_workers import (
    WorkerVersions,
    default_worker_id,
    is_default,
    java_kcl_may_read,
    observe_renewals,
)
from sparkinesis.lease.table.rows import TableScan, read_rows
from tests.kcl import COORDINATION

ME = "my-own-name"
OURS = default_worker_id("ip-10-0-0-1", 4711, random.Random(1))
UUID = "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa"
"""What amazon-kinesis-client 3.1.3 called itself; its last two groups look like ours."""


def lease(owner: str | None, at: str = "100", timestamp_ms: int | None = None) -> Lease:
    return Lease(
        "s", "s", ExtendedSequenceNumber(at), owner=owner, counter=3, timestamp_ms=timestamp_ms
    )


def is_shared(*leases: Lease) -> bool:
    return java_kcl_may_read(TableScan(leases), ME)


@pytest.mark.parametrize(
    ("worker_id", "made_here"),
    [
        (OURS, True),
        ("host-1-0123456789ab", True),
        (UUID, False),
        (f"ip-10-0-0-1.ec2.internal:{UUID}", False),
        (UUID.upper(), False),
        ("worker-1", False),
    ],
)
def test_worker_ids_that_are_made_here(worker_id: str, *, made_here: bool) -> None:
    assert is_default(worker_id) is made_here


def test_workers_of_ours_alone_are_no_sign() -> None:
    assert not is_shared()
    assert not is_shared(lease(OURS), lease(ME), lease(None), lease(None, "LATEST", 1))
    assert not is_shared(replace(lease(OURS), owner=ME, checkpoint_owner=OURS))


@pytest.mark.parametrize("owner", [UUID, f"host:{UUID}", "worker-1"])
def test_an_owner_whose_name_was_not_made_here_may_be_java(owner: str) -> None:
    assert is_shared(lease(OURS), lease(owner))
    assert is_shared(replace(lease(ME), checkpoint_owner=owner))
    assert not is_shared(lease(OURS), lease(owner, "SHARD_END")), "it may be long gone"


@pytest.mark.parametrize("at", ["LATEST", "AT_TIMESTAMP"])
def test_a_lease_whose_instant_nobody_noted_is_javas(at: str) -> None:
    assert is_shared(lease(None, at))


def test_what_a_kcl_3_5_keeps_beside_the_leases_is_a_sign() -> None:
    """Before it has made a lease, and where it holds none."""
    assert java_kcl_may_read(read_rows(COORDINATION), ME)
    ours: list[Any] = [encode_lease(lease(OURS))]
    assert not java_kcl_may_read(read_rows(ours), ME)
    assert java_kcl_may_read(read_rows([*ours, *COORDINATION]).single_stream, ME)
    assert java_kcl_may_read(read_rows([{**ours[0], "entityType": {"S": "LEASE"}}]), ME)


@pytest.mark.parametrize("writer", [OURS, ME, UUID, "worker-1"])
@pytest.mark.parametrize("number", range(3), ids=["lock", "mode", "stats"])
def test_rows_of_coordination_are_a_sign_if_a_java_kcl_may_have_written_them(
    number: int, writer: str
) -> None:
    """A worker of this library writes such rows, too."""
    attribute = ("ownerName", "mb", "leaseKey")[number]
    row = {**COORDINATION[number], attribute: {"S": writer}}
    assert java_kcl_may_read(read_rows([row]), ME) is (writer in {UUID, "worker-1"})


F = 9.0
LOOK = F / 6
ROW = Lease("s", "s", ExtendedSequenceNumber("TRIM_HORIZON"), owner="peer", counter=1)
Life = Callable[[Lease, int], Lease]
"""The row in the next scan, by its number."""


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
