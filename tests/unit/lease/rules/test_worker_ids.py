"""Signs that a Java KCL reads a lease table, too."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.rules.worker_ids import default_worker_id, is_default, java_kcl_may_read
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
