"""The auditor: the worker that compares the leases with the shards. All compute the same one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeVar

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Snapshot

_T = TypeVar("_T")

_SEED = 1947
"""The seed of the KCL's ``DeterministicShuffleShardSyncLeaderDecider``."""


def auditor(leases: Iterable[Lease], expired: Container[str] = ()) -> str | None:
    """Return the worker that audits by this snapshot; None if no lease has an owner: any may.

    The auditor is the one that a KCL 2.x elects as its leader: the first of all owners, sorted,
    after a shuffle with a fixed seed. Unlike in the KCL, finished leases do not count, and neither
    do leases whose keys are in ``expired``: both may name a dead worker, and then no worker would
    audit.

    Two workers may see different snapshots, so two may audit for a while. Their work is correct
    even then: they create only leases that do not exist.
    """
    owners = {
        lease.owner
        for lease in leases
        if lease.owner and not lease.is_finished and lease.key not in expired
    }
    shuffled = java_shuffle(sorted(owners, key=java_order), _SEED)
    return shuffled[0] if shuffled else None


def audits(worker_id: str, leases: Iterable[Lease], snapshot: Snapshot) -> bool:
    """Return True if the worker is the auditor, among the owners of these leases, by a snapshot.

    Each stream has an auditor of its own among its readers: during a deployment, the auditor of the
    whole table may not read it. Where workers read only their own rows, the leader that assigns all
    leases audits them, too.
    """
    if snapshot.audits is not None:
        return snapshot.audits
    return auditor(leases, snapshot.expired) in {None, worker_id}


def java_order(text: str) -> bytes:
    """Return a key that sorts like Java's ``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def java_shuffle(items: Sequence[_T], seed: int) -> list[_T]:
    """Return the items in the order after ``Collections.shuffle(items, new Random(seed))``."""
    shuffled, bounds = list(items), range(len(items), 1, -1)
    for i, j in zip(bounds, java_numbers(seed, bounds), strict=True):
        shuffled[i - 1], shuffled[j] = shuffled[j], shuffled[i - 1]
    return shuffled


def java_numbers(seed: int, bounds: Iterable[int]) -> Iterator[int]:
    """Yield a number below each bound, as ``new java.util.Random(seed).nextInt(bound)`` returns it.

    The algorithm, a linear congruential generator of 48 bits, is part of Java's documented API.
    """
    mask = (1 << 48) - 1
    state = (seed ^ 0x5DEECE66D) & mask
    for bound in bounds:
        number = None
        while number is None:
            state = (state * 0x5DEECE66D + 0xB) & mask
            bits = state >> 17
            if bound & (bound - 1) == 0:
                number = bound * bits >> 31
            # Skip the incomplete last block of `bound` numbers, which would favour low numbers.
            elif bits - bits % bound + bound <= 1 << 31:
                number = bits % bound
        yield number
