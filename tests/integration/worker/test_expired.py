"""Records that expire before a worker reads them are told, for every kind of position (W3).

And only those: what had expired before an application began, or a shard's silence, is no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.rules.children import ShardEnd
from sparkinesis.metrics.catalogue import DATA_LOSS
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    InitialPosition,
)
from sparkinesis.worker.lifecycle.worker import Worker
from tests import pace
from tests.integration.worker.scene import checkpoint, told
from tests.journal import PATIENCE, Journal, Journaling
from tests.local_application import local_application
from tests.streams import put, records_of
from tests.tallies import Tallied, counted
from tests.timed_stream import HOUR, SHARDS, START, TimedStream

LOSS = "removed before"


def application_on(
    one: TimedStream, processor: Any, initial: Any = "trim_horizon", **options: Any
) -> Application:
    options |= {"failover_time": pace.seconds(1.0), "idle_time": 0.25}
    endpoint = str(one.table.endpoint)
    return local_application(one.name, endpoint, processor, initial_position=initial, **options)


@pytest.fixture
def run(
    one: TimedStream, start: Callable[[Application], Worker], tallied: Tallied
) -> Callable[..., Any]:
    """Starts a worker, and waits until it has processed some records, which it checkpoints."""

    def run(
        *datas: bytes, initial: Any = "latest", skip_older_than: float | None = None
    ) -> tuple[Worker, Journal]:
        journal = Journal()
        options = {"skip_older_than": skip_older_than, "metrics": (tallied,)}
        processor = lambda: Journaling(journal, checkpoint)  # noqa: E731
        worker = start(application_on(one, processor, initial, **options))
        journal.wait_for_data(*datas)
        return worker, journal

    return run


def initial_position(name: str, began: AtTimestamp) -> InitialPosition:
    named: dict[str, InitialPosition] = {"latest": LATEST, "trim_horizon": TRIM_HORIZON}
    return named.get(name, began)


def after_an_outage(one: TimedStream, hours: int = 30) -> None:
    put(one.kinesis, one.name, [b"lost"], "k")
    one.clock.advance(hours * HOUR)
    put(one.kinesis, one.name, [b"kept"], "k")


@pytest.mark.parametrize("initial", ["latest", "instant", "trim_horizon"])
def test_a_lease_that_nobody_began_in_time(
    one: TimedStream,
    run: Callable[..., Any],
    initial: str,
    *,
    tallied: Tallied,
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = AtTimestamp(one.clock())
    one.shard_syncer(initial_position(initial, began)).sync()
    after_an_outage(one)
    position = began.instant if initial == "instant" else initial
    worker, journal = run(b"kept", initial=position)
    assert journal.data() == [b"kept"]
    place = "TRIM_HORIZON" if initial == "trim_horizon" else str(began)
    (loss,) = told(caplog, LOSS)
    assert f"The position {place} in shard {SHARDS[0]}" in loss
    (failure,) = worker.failures()
    assert (failure.count, failure.shard_ids) == (1, (SHARDS[0],))
    assert failure.error.startswith("DataLossError: ")
    assert counted(tallied.tally, DATA_LOSS) == {(one.name,): 1}


def test_a_start_of_a_processors_own_store_that_has_expired(
    one: TimedStream, start: Callable[[Application], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    """The lease is new, and knows of no time: the table was made anew, and the store was not."""
    put(one.kinesis, one.name, [b"done"], "k")
    (done,) = records_of(one.kinesis, one.name, SHARDS[0])
    after_an_outage(one)
    journal, place = Journal(), ExtendedSequenceNumber(done["SequenceNumber"])
    processor = lambda: Journaling(  # noqa: E731
        journal, checkpoint, on_initialize=lambda shard: place
    )
    worker = start(application_on(one, processor))
    journal.wait_for_data(b"kept")
    assert journal.data() == [b"kept"]
    (loss,) = told(caplog, LOSS)
    assert f"The position {done['SequenceNumber']}" in loss
    assert worker.failures()


@pytest.mark.parametrize("end", [ShardEnd(), ShardEnd(START, START)])
def test_a_child_whose_parent_had_ended(
    one: TimedStream, run: Callable[..., Any], end: ShardEnd, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether its reader knew anything of times, or nothing."""
    one.shard_syncer().sync()
    one.split(0, at_64ths=1)
    assert one.end(0, end=end)
    after_an_outage(one)
    worker, journal = run(b"kept")
    shard = journal.records()[0].shard_id
    assert shard == SHARDS[2]
    assert any(f"The position TRIM_HORIZON in shard {shard}" in text for text in told(caplog, LOSS))
    assert worker.failures()


def test_a_shard_that_has_expired_is_not_told_to_be_checkpointed(
    one: TimedStream, start: Callable[[Application], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    """Its records are lost: the lines that follow say so, too."""
    caplog.set_level("INFO")
    one.shard_syncer(TRIM_HORIZON).sync()
    put(one.kinesis, one.name, [b"lost"], "k")
    one.split(0, at_64ths=1)
    one.clock.advance(30 * HOUR)
    journal = Journal()
    processor = lambda: Journaling(journal, checkpoint)  # noqa: E731
    start(application_on(one, processor, "trim_horizon"))
    pace.eventually(lambda: told(caplog, f"Released {SHARDS[0]}"))
    assert told(caplog, f"The rest of shard {SHARDS[0]}")
    (left,) = told(caplog, f"Left {SHARDS[0]}")
    assert "are lost" in left
    assert not told(caplog, f"Finished {SHARDS[0]}")
    assert not [line for line in told(caplog, SHARDS[0]) if "all of its records" in line]


@pytest.mark.parametrize("skip_older_than", [None, 7 * 86_400.0])
def test_what_had_expired_before_the_first_start_is_no_loss(
    one: TimedStream,
    run: Callable[..., Any],
    skip_older_than: float | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor is it if records would be wanted that are older than any that the stream keeps."""
    after_an_outage(one)
    worker, journal = run(b"kept", initial="trim_horizon", skip_older_than=skip_older_than)
    assert journal.data() == [b"kept"]
    assert not told(caplog, LOSS)
    assert not worker.failures()


@pytest.mark.parametrize(("skip_older_than", "count"), [(HOUR / 1000, 0), (26 * HOUR / 1000, 1)])
def test_what_would_be_passed_over_anyway_is_no_loss(
    one: TimedStream,
    run: Callable[..., Any],
    skip_older_than: float,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Behind a checkpoint: the stream keeps all that is wanted, or not all of it."""
    put(one.kinesis, one.name, [b"first"], "k")
    worker, _ = run(b"first", initial="trim_horizon")
    assert worker.shutdown(PATIENCE)
    after_an_outage(one)
    _, journal = run(b"kept", skip_older_than=skip_older_than)
    assert journal.data() == [b"kept"]
    assert len(told(caplog, LOSS)) == count


def test_shards_that_came_a_moment_ago_have_lost_nothing(
    one: TimedStream, run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Their parent was quiet for longer than records are kept: its reader can tell nothing."""
    one.shard_syncer().sync()
    one.clock.advance(30 * HOUR)
    one.split(0, at_64ths=1)
    assert one.end(0)
    one.clock.advance(2 * HOUR)
    put(one.kinesis, one.name, [b"kept"], "k")
    run(b"kept")
    assert not told(caplog, LOSS)


@pytest.mark.parametrize("begins", ["latest", "behind a record"])
def test_a_quiet_shard_that_somebody_reads_loses_nothing(
    one: TimedStream, run: Callable[..., Any], begins: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease tells the next reader that the last one was at the tip all the time."""
    datas = [] if begins == "latest" else [b"first"]
    if datas:
        put(one.kinesis, one.name, datas, "k")
    worker, _ = run(*datas, initial="latest" if begins == "latest" else "trim_horizon")
    for _ in range(3):
        one.clock.advance(6 * HOUR)
        seen_ms = one.clock() - 2 * 60_000
        for _ in range(600):
            known = one.rows()[0].known
            until = known.clear_until if isinstance(known, AfterRecord) else known and known.ms
            if until and until >= seen_ms:
                break
            worker.wait(0.1)
        else:
            pytest.fail(f"the lease tells {known} at {seen_ms}")
    assert worker.shutdown(PATIENCE)
    one.clock.advance(20 * HOUR)
    put(one.kinesis, one.name, [b"kept"], "k")
    run(b"kept")
    assert not told(caplog, LOSS)


@pytest.mark.parametrize("initial", ["latest", "instant", "trim_horizon"])
def test_another_stream_of_the_same_name_is_told(
    one: TimedStream, run: Callable[..., Any], initial: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = AtTimestamp(one.clock())
    one.shard_syncer(initial_position(initial, began)).sync()
    put(one.kinesis, one.name, [b"of the old one"], "k")
    one.clock.advance(HOUR)
    one.kinesis.delete_stream(StreamName=one.name)
    one.kinesis.create_stream(StreamName=one.name, ShardCount=1)
    put(one.kinesis, one.name, [b"of the new one"], "k")
    position = began.instant if initial == "instant" else initial
    _, journal = run(b"of the new one", initial=position)
    assert journal.data() == [b"of the new one"]
    assert told(caplog, "was deleted and made anew")
