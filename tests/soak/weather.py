"""Which call goes wrong, and how: a fault plan that changes with time.

A minute has a stretch of bad weather, of one kind. What happens to a call depends on the seed and
on which call it is, and on nothing else.
"""

from __future__ import annotations

import random

from sparkinesis.local.faults import Call, Fault

MINUTE = 60.0
KINDS = ("throttles", "errors", "resets", "slow")
_HARMED = 0.25
"""The share of calls that go wrong in bad weather."""
_THROTTLED = {
    "BatchExecuteStatement": "ProvisionedThroughputExceededException",
    "UpdateItem": "ProvisionedThroughputExceededException",
    "Scan": "ProvisionedThroughputExceededException",
    "GetRecords": "ProvisionedThroughputExceededException",
    "GetShardIterator": "ProvisionedThroughputExceededException",
    "PutRecords": "ProvisionedThroughputExceededException",
    "ListShards": "LimitExceededException",
    "SubscribeToShard": "LimitExceededException",
}
"""The operations that faults are for, and how each says that it was called too often."""


def kind_at(seconds: float, seed: int) -> str | None:
    """The weather so long after the start; None: fair."""
    minute, within = divmod(seconds, MINUTE)
    rng = random.Random(f"{seed} weather {int(minute)}")
    begins, lasts = rng.uniform(10, 35), rng.uniform(10, 20)
    return rng.choice(KINDS) if begins <= within < begins + lasts else None


def fault_of(call: Call, seconds: float, seed: int) -> Fault | None:
    """What goes wrong with a call that comes so long after the start."""
    kind = kind_at(seconds, seed)
    if kind is None or call.operation not in _THROTTLED:
        return None
    rng = random.Random(f"{seed} {call.operation} {call.stream} {call.shard} {call.ordinal}")
    if rng.random() >= _HARMED:
        return None
    if kind == "throttles":
        return Fault.error(_THROTTLED[call.operation])
    if kind == "errors":
        if call.operation == "SubscribeToShard" and rng.random() < 0.5:
            return Fault(stream_code="InternalFailureException", stream_after=rng.randrange(4))
        return Fault.error("InternalFailure", status=500)
    if kind == "resets":
        if call.operation == "SubscribeToShard":
            return Fault(cut_after=rng.randrange(20_000))
        return Fault.dropped(rng.choice(["before", "after"]))
    return Fault.delay(rng.randrange(200, 2_000))
