"""The leader: the worker that audits the lease table. All workers compute the same one."""

from __future__ import annotations

from collections.abc import Container, Iterable

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.java_random import java_order, java_shuffle

_SEED = 1947
"""The seed of the KCL's ``DeterministicShuffleShardSyncLeaderDecider``."""


def leader(leases: Iterable[Lease], expired: Container[str] = ()) -> str | None:
    """Return the worker that leads by this snapshot; None if no lease has an owner: any may lead.

    The leader is the one that a KCL 2.x elects: the first of all owners, sorted, after a shuffle
    with a fixed seed. Unlike in the KCL, finished leases do not count, and neither do leases whose
    keys are in ``expired``: both may name a dead worker, and then no worker would lead.

    Two workers may see different snapshots, so two may lead for a while. The leader's work is
    correct even then: it creates only leases that do not exist.
    """
    owners = {
        lease.owner
        for lease in leases
        if lease.owner and not lease.is_finished and lease.key not in expired
    }
    shuffled = java_shuffle(sorted(owners, key=java_order), _SEED)
    return shuffled[0] if shuffled else None


def leads(worker_id: str, leases: Iterable[Lease], expired: Container[str] = ()) -> bool:
    """Return True if the worker leads, among the owners of these leases.

    Each stream has a leader of its own among its readers: during a deployment, the leader of the
    whole table may not read it.
    """
    return leader(leases, expired) in {None, worker_id}
