"""Enhanced fan-out under a drawn history of faults, puts and pauses: each record once, in order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.metrics.catalogue import CALL_DURATION, RECORDS_FETCHED, SUBSCRIPTIONS_ENDED
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.cursor import RETRY
from sparkinesis.stream.fan_out.registration import register_consumer
from sparkinesis.stream.position import TRIM_HORIZON
from tests.examples import examples
from tests.fetching import FetchingCursor
from tests.properties.conftest import START_MS
from tests.tallies import counted

SHARD = "shardId-000000000000"

codes = st.sampled_from(
    [
        "InternalFailureException",
        "KMSThrottlingException",
        "LimitExceededException",
        "ResourceInUseException",
    ]
)
faults = st.one_of(
    st.none(),
    st.builds(Fault.error, codes),
    st.builds(Fault.error, st.just("InternalFailure"), status=st.just(500)),
    st.builds(Fault.dropped, st.sampled_from(["before", "after"])),
    st.builds(lambda length: Fault(cut_after=length), st.integers(0, 3000)),
    st.builds(lambda code, n: Fault(stream_code=code, stream_after=n), codes, st.integers(0, 3)),
)
steps = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 20)),
    st.tuples(st.just("fetch"), st.integers(1, 4)),
    st.tuples(st.just("pause"), st.integers(1, 400)),
)


def following(drawn: list[Fault | None]) -> Callable[[Call], Fault | None]:
    left = iter(drawn)
    return lambda call: next(left, None) if call.operation == "SubscribeToShard" else None


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture(scope="module")
def server(clock: ManualClock) -> Iterator[LocalServer]:
    """One for all histories: what takes long is to make boto3's clients. With all limits."""
    with LocalServer(clock=clock) as running:
        yield running


names = map("s-{}".format, itertools.count())


@settings(max_examples=examples(50), deadline=None)
@given(drawn=st.lists(faults, max_size=8), history=st.lists(steps, max_size=12))
def test_each_record_once(
    server: LocalServer,
    clock: ManualClock,
    drawn: list[Fault | None],
    history: list[tuple[str, int]],
) -> None:
    server.kinesis.faults = None
    name = next(names)
    server.kinesis.call("CreateStream", StreamName=name, ShardCount=1)
    tally = Tally()
    client = StreamClient(
        StreamAddress(name, None, "us-east-1", server.endpoint_url), metrics=tally
    )
    consumer = register_consumer(client, "c")
    server.kinesis.faults = following(drawn)

    def wait(_: threading.Event, seconds: float) -> None:
        clock.advance(int(seconds * 1000) + 1)

    cursor = FetchingCursor(
        client,
        consumer,
        SHARD,
        TRIM_HORIZON,
        retry=replace(RETRY, clock=lambda: clock() / 1000),
        wait=wait,
    )
    found: list[bytes] = []
    count = 0

    def fetch() -> None:
        clock.advance(5000)  # so that there is an event, if only one without records
        fetched = cursor.fetch()
        assert fetched is not None
        found.extend(record.data for record in fetched.page.records)

    for step, number in history:
        if step == "put":
            for _ in range(number):
                server.kinesis.call(
                    "PutRecord", StreamName=name, Data=b"%d" % count, PartitionKey="k"
                )
                count += 1
        elif step == "pause":
            clock.advance(number * 1000)
        else:
            for _ in range(number):
                fetch()
    server.kinesis.call(
        "SplitShard", StreamName=name, ShardToSplit=SHARD, NewStartingHashKey=str(2**127)
    )
    while not cursor.at_end:
        fetch()
    cursor.stop()
    server.kinesis.call("DeleteStream", StreamName=name, EnforceConsumerDeletion=True)
    clock.advance(5000)
    assert found == [b"%d" % n for n in range(count)]
    # The metrics agree, too: records once, and a reason for the end of each subscription.
    assert counted(tally, RECORDS_FETCHED) == ({(name,): count} if count else {})
    attempts = sum(
        number
        for (_, operation, _), number in counted(tally, CALL_DURATION).items()
        if operation == "SubscribeToShard"
    )
    assert sum(counted(tally, SUBSCRIPTIONS_ENDED).values()) == attempts
