"""P2 while calls fail: every record exactly once, and each batch the same when read again."""

from __future__ import annotations

import random

import pytest

from sparkinesis.local import Call, Fault, FaultPlan
from tests.failing import Failing
from tests.properties.conftest import World
from tests.streams import active_shards, merge_neighbours, put, split

READS = {"GetRecords", "GetShardIterator", "ListShards", "SubscribeToShard"}


def now_and_then(fault: Fault, operations: set[str], seed: int) -> FaultPlan:
    """A fifth of the calls: the same ones, in whichever order threads and tests make them."""

    def plan(call: Call) -> Fault | None:
        drawn = random.Random(f"{seed} {call.operation} {call.shard} {call.ordinal}").random()
        return fault if call.operation in operations and drawn < 0.2 else None

    return plan


def arrival_times_out_of_order(call: Call) -> Fault | None:
    return Fault(arrival_skew_ms=call.ordinal * 7919 % 4001 - 2000)


def cut_anywhere(call: Call) -> Fault | None:
    return Fault(cut_after=call.ordinal * 7919 % 20_000)


def exceptions_in_events(call: Call) -> Fault | None:
    codes = ("InternalFailureException", "ResourceInUseException", "KMSThrottlingException")
    return Fault(stream_code=codes[call.ordinal % 3], stream_after=call.ordinal % 4)


FAULTS: dict[str, FaultPlan] = {
    "throttled": now_and_then(Fault.error("ProvisionedThroughputExceededException"), READS, 1),
    "throttled by KMS": now_and_then(Fault.error("KMSThrottlingException"), {"GetRecords"}, 2),
    "internal failure": now_and_then(Fault.error("InternalFailure", status=500), READS, 3),
    "reset before": now_and_then(Fault.dropped("before"), READS, 4),
    "reset after": now_and_then(Fault.dropped("after"), READS, 5),
    "expired iterator": now_and_then(Fault.error("ExpiredIteratorException"), {"GetRecords"}, 6),
    "arrival times out of order": arrival_times_out_of_order,
    "taken": now_and_then(Fault.error("ResourceInUseException"), {"SubscribeToShard"}, 7),
    "cut anywhere": cut_anywhere,
    "exceptions in events": exceptions_in_events,
}
POLLING = list(FAULTS)[:7]
EFO = ["throttled", "internal failure", "reset after", *list(FAULTS)[7:]]


@pytest.mark.parametrize(
    ("mode", "kind"), [*(("polling", kind) for kind in POLLING), *(("efo", kind) for kind in EFO)]
)
def test_p2_every_record_once_while_calls_fail(world: World, kind: str) -> None:
    rng = random.Random(kind)
    world.server.kinesis.faults = FAULTS[kind]
    running = world.query(maxRecordsPerFetch="40")
    put_so_far = 0
    batches = []
    for step in range(10):
        count = rng.choice([0, 1, 30, 300])
        put(world.kinesis, "s", [b"%06d" % n for n in range(put_so_far, put_so_far + count)])
        put_so_far += count
        world.clock.advance(rng.randrange(100, 20_000))
        if step % 3 == 2:
            world.server.kinesis.faults = None  # they are the query's, not the test's
            few = len(active_shards(world.kinesis, "s")) < 3
            (split if few else merge_neighbours)(world.kinesis, "s", rng)
            world.server.kinesis.faults = FAULTS[kind]
        if step % 5 == 4:
            running.restart()
        if batch := running.next_batch():
            batches.append(batch)
    batches += running.drain()
    delivered = [row["data"] for batch in batches for row in batch.rows]
    assert sorted(delivered) == [b"%06d" % n for n in range(put_so_far)]
    for batch in batches:
        assert world.query().read(batch.start, batch.end).rows == batch.rows


@pytest.mark.parametrize("mode", ["polling", "efo"])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AccessDeniedException", "AccessDeniedError: Not allowed to call GetRecords on shard"),
        ("KMSDisabledException", "ServiceError: GetRecords failed on shard"),
    ],
)
def test_what_no_retry_mends_fails_at_once_and_says_where(
    world: World, code: str, error: str
) -> None:
    put(world.kinesis, "s", [b"a"])
    said = Fault.error(code, "the service's words")
    world.server.kinesis.faults = Failing("GetRecords", then=said)
    world.server.kinesis.calls.clear()
    with pytest.raises(Exception, match="the service's words") as caught:
        world.query().plan()
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(error)
    assert world.server.kinesis.calls.count("GetRecords") <= 2
