"""When a machine may ask for a subscription to a shard (P7)."""

from __future__ import annotations

from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Fault
from sparkinesis.source.reading.subscribed_cursor import (
    AFTER_LOSS,
    RangeSubscription,
    SubscribeLimiter,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.budget import LocalBudgetState
from tests.failing import Failing
from tests.planners import Time
from tests.streams import arn_of


def test_one_of_several_tasks_asks_and_the_next_after_five_seconds() -> None:
    clock, slot = Time(), LocalBudgetState()
    tasks = [SubscribeLimiter(slot, clock) for _ in range(3)]
    assert [task.try_acquire() for task in tasks] == [True, False, False]
    clock.now += 2.0
    # The answer was slow: the service counts from when it gave it.
    tasks[0].delay_next(BETWEEN_SUBSCRIPTIONS)
    clock.now += 4.9
    assert not any(task.try_acquire() for task in tasks)
    clock.now += 0.1
    assert [task.try_acquire() for task in tasks] == [True, False, False]


def test_an_instant_that_nobody_of_this_boot_wrote_says_nothing() -> None:
    clock, slot = Time(), LocalBudgetState()
    limiter = SubscribeLimiter(slot, clock)
    limiter.delay_next(AFTER_LOSS)
    assert not limiter.try_acquire()
    slot.free_at = clock.now + AFTER_LOSS + 1
    assert limiter.try_acquire()


def test_without_limits_every_task_asks() -> None:
    assert all(SubscribeLimiter(None).try_acquire() for _ in range(3))


def test_a_range_that_the_service_refuses_is_asked_for_after_a_second() -> None:
    """Another machine has subscribed, perhaps four seconds ago."""
    clock, slot = Time(), LocalBudgetState()
    with LocalServer(limits=None) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        consumer = kinesis.register_stream_consumer(
            StreamARN=arn_of(kinesis, "s"), ConsumerName="c"
        )["Consumer"]["ConsumerARN"]
        refusal = Fault.error("ResourceInUseException", "another one has just subscribed")
        server.kinesis.faults = Failing("SubscribeToShard", then=refusal)
        client = StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))
        limiter = SubscribeLimiter(slot, clock)
        subscription = RangeSubscription(client, limiter, consumer, "shardId-000000000000", clock)
        for seconds, calls in ((0.0, 1), (0.9, 1), (0.1, 2)):
            clock.now += seconds
            subscription.begin(TRIM_HORIZON)
            assert not subscription.is_open
            assert server.kinesis.calls.count("SubscribeToShard") == calls
