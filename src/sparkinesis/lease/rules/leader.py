"""Who leads: the worker that audits the lease table. No election is held: all compute the same."""

from __future__ import annotations

from collections.abc import Container, Iterable

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.java_random import java_order, java_shuffle

_SEED = 1947
"""That of the KCL's ``DeterministicShuffleShardSyncLeaderDecider``."""


def leader(leases: Iterable[Lease], expired: Container[str] = ()) -> str | None:
    """The worker that leads by this snapshot; None where no lease has an owner: any may lead then.

    It is the one that a KCL 2.x elects: the first of all owners, sorted, after a shuffle with a
    fixed seed. Unlike there, finished leases do not count, and neither do those whose keys are in
    ``expired``: either may name a worker long dead for good, and nobody would lead.

    Two workers may see different snapshots, so two may lead for a while. What a leader does must
    be right all the same: it creates leases only where there are none.
    """
    owners = {
        lease.owner
        for lease in leases
        if lease.owner and not lease.is_finished and lease.key not in expired
    }
    shuffled = java_shuffle(sorted(owners, key=java_order), _SEED)
    return shuffled[0] if shuffled else None
