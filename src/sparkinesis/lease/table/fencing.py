"""The fencing token: a number that grows with each acquisition of a shard's lease. Pure.

A user's own store keeps the largest token that it has seen for a shard, and refuses writes with a
smaller one: they come from a worker that lost the lease without knowing so.

While a row stays, its token grows by the row itself: each acquisition writes a larger one than it
found (`requests.take`). A row that is new, or restored from a backup, does not know the tokens of
the past. So a token is at least the time of the acquisition, by the clock of DynamoDB, whose
``Date`` header has whole seconds. Random digits below the second keep apart two acquisitions of one
second with a new row in between. Their order is then random, too. A token that is too small is
refused by the store, and is larger at the next acquisition; no clock lets a zombie write.
"""

# The last three digits are a checksum of the worker's id. Where a leader assigns leases, a reset
# once released a lease, and the leader took it and handed it to its former reader, all before that
# reader's next renewal. The reader saw a row of its own with a counter and a token that it had not
# written, took that for another process of its worker id, and ended. By the checksum it knows that
# another worker acquired the lease in between (`write_conflict.resolve_conflict`).

from __future__ import annotations

import random
import zlib

from sparkinesis.lease.lease import MOST_TOKEN

_BELOW_A_SECOND = 1_000_000
_CHECKSUMS = 1_000


def token_at(second: int | None, rng: random.Random) -> int:
    """Return the least token of an acquisition at an epoch second; None: the time is unknown.

    A token of the year 2026 has 16 digits. The date of any year up to 9999 leaves it below 2**63.
    """
    if second is None:
        return 1
    return max(1, second * _BELOW_A_SECOND + rng.randrange(_BELOW_A_SECOND))


def next_token(known: int | None, at_least: int, worker_id: str) -> int:
    """Return a worker's next fencing token: after the row's, and not below ``at_least``.

    Its last digits are a checksum of the worker's id. A worker whose lease was acquired meanwhile,
    and is its own again by the row, knows by them whether another worker had the lease in between,
    or another process of its own worker id has it (`may_be_by`).
    """
    least = max(at_least, (known or 0) + 1)
    token = least + (_checksum(worker_id) - least) % _CHECKSUMS
    return token if token < MOST_TOKEN else least


def may_be_by(token: int | None, worker_id: str) -> bool:
    """Return True if a process of this worker id may have acquired the lease; None: nobody has."""
    return token is not None and token % _CHECKSUMS == _checksum(worker_id)


def _checksum(worker_id: str) -> int:
    return zlib.crc32(worker_id.encode()) % _CHECKSUMS
