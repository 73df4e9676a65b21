"""A fault plan that changes with time.

Each minute has a stretch of one kind of faults. The fault of a call depends only on the seed and on
the call.
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
    """The fault of a call at this many seconds after the start; None for none."""
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
