"""The fencing token: a number that grows with each acquisition of a shard's lease. Pure.

A user's own store keeps the largest token that it has seen for a shard, and refuses writes with a
smaller one: they come from a worker that lost the lease without knowing so.

While a row stays, its token grows by the row itself: each acquisition writes a larger one than it
found (`sparkinesis.lease.table.requests.take`). A row that is new, or restored from a backup, does
not know the tokens of the past. So a token is at least the time of the acquisition, by the clock of
DynamoDB, whose ``Date`` header tells whole seconds. Random digits below the second keep apart two
acquisitions of one second with a new row in between. Their order is then random, too. A token that
is too small is refused by the store, and is larger at the next acquisition; no clock lets a zombie
write.
"""

from __future__ import annotations

import random

_BELOW_A_SECOND = 1_000_000


def token_at(second: int | None, rng: random.Random) -> int:
    """Return the least token of an acquisition at an epoch second; None: the time is unknown.

    A token of the year 2026 has 16 digits. The date of any year up to 9999 leaves it below 2**63.
    """
    if second is None:
        return 1
    return max(1, second * _BELOW_A_SECOND + rng.randrange(_BELOW_A_SECOND))
