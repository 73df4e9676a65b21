"""The log lines of events: texts that name the reason and the other worker, and levels."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import sparkinesis
from sparkinesis import events
from sparkinesis.events import (
    BatchAction,
    BatchFailed,
    CheckpointRefused,
    ChildrenUnlisted,
    ChildrenWaiting,
    ConsumerDeregistered,
    DataLost,
    DeadLettersStored,
    Event,
    FormerStreamDeleted,
    FormerStreamKept,
    HandoffRequested,
    LeaseCreated,
    LeaseDeleted,
    LeaseEnd,
    LeaseEnded,
    LeaseOrigin,
    LeaseReadable,
    LeasesMissing,
    LeaseTaken,
    LeaseUnreadable,
    LeaseUnwritable,
    LegacyWorkerSeen,
    OldRecordsSkipped,
    OwnerSilent,
    ParentsLost,
    PollingInstead,
    ProcessingTimeExceeded,
    ReaderDied,
    RecordsSkipped,
    RenewalFailed,
    RenewalRecovered,
    ShardEnded,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    ShardSyncRecovered,
    ShutdownBegan,
    ShutdownOverdue,
    StreamFailing,
    StreamMadeAnew,
    StreamReadable,
    StreamRemoved,
    TableFound,
    TableMissing,
    TakingFailed,
    TakingRecovered,
    TaskFailed,
    TroubleBegan,
    TroubleEnded,
    WorkerEnded,
    WorkerFailed,
    WorkerReport,
    WorkerStarted,
)
from sparkinesis.status import Failure
from sparkinesis.worker.reporting.event_log import EventLog

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


def taken(origin: LeaseOrigin, previous: str | None = None, waited: float | None = None) -> Event:
    return LeaseTaken("s0", "s0", origin, previous, waited, "7:0")


def ended(reason: LeaseEnd, other: str | None = None, error: str | None = None) -> Event:
    return LeaseEnded("s0", "s0", reason, "DETAIL", other, 61.25, "7:0", error)


KEY = "1:s:7:s0"
"""The key of a lease in an application of several streams."""
AT = ("s0", "s0", "s", "shard s0 of 's'")
FAILURE = Failure("f", "what", "ValueError: x", "", 2, ("s0",))


def failed(
    action: BatchAction, *, is_again: bool = False, failure: Failure | None = FAILURE
) -> Event:
    return BatchFailed(*AT, 3, "1:0", "3:0", action, "ValueError: x", failure, is_again)


KINDS = {
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and not kind.__subclasses__()
}

LINES: list[tuple[Event, int, str]] = [
    (LeaseCreated("s0", "s0", "LATEST"), INFO, "Created the lease s0 at LATEST"),
    (
        LeaseDeleted("s0", "s0"),
        INFO,
        "Deleted the lease s0: its shard and the parents of the shard are finished",
    ),
    (
        LeasesMissing("lease table 't'", None, "[0, 7]"),
        WARNING,
        "No lease of the lease table 't' covers the hash keys [0, 7]: creating the missing leases",
    ),
    (
        LeasesMissing("lease table 't'", "1:s:7", "[0, 7]"),
        WARNING,
        (
            "No lease of the lease table 't' covers the hash keys [0, 7] in stream 1:s:7: creating "
            "the missing leases"
        ),
    ),
    (
        ChildrenWaiting(KEY, "s0", ("s1", "s2")),
        INFO,
        f"{KEY} has ended; its children wait for the leases of s1, s2",
    ),
    (
        ChildrenUnlisted("s0", "s0", "s", "stream 's'", 61.5),
        WARNING,
        (
            "s0 of stream 's' ended 62 s ago without naming its children, and ListShards does not "
            "show its end yet. The children are not read until it does."
        ),
    ),
    (
        LeaseUnreadable("s0", "lease table 't'", "it has no checkpoint"),
        ERROR,
        (
            "The lease s0 in the lease table 't' cannot be read: it has no checkpoint. No worker "
            "takes the lease, and the children of the shard wait; other shards are not affected. "
            "Repair the row, or delete it to read the shard from its start again."
        ),
    ),
    (
        LeaseReadable("s0", "lease table 't'"),
        INFO,
        "The lease s0 in the lease table 't' can be read again",
    ),
    (
        LeaseUnwritable("s0", "ServiceError: no"),
        ERROR,
        "The lease s0 cannot be written and is skipped: ServiceError: no",
    ),
    (
        LegacyWorkerSeen("w7", "lease table 't'"),
        INFO,
        (
            "The worker w7 of the lease table 't' does not support handoffs, like a KCL before "
            "3.0: its leases are taken without a request, and records that it has not checkpointed "
            "are processed again"
        ),
    ),
    (
        FormerStreamDeleted("s", "1:s:7", 3, 61.5),
        INFO,
        (
            "Deleted 3 leases of 1:s:7, which left the application, and which no worker has read "
            "for 62 s"
        ),
    ),
    (
        FormerStreamKept("s", "1:s:7"),
        INFO,
        "Another worker has begun to read 1:s:7: its leases stay",
    ),
    (
        TroubleBegan("Asking fails", "will be retried", "E"),
        WARNING,
        "Asking fails; will be retried: E",
    ),
    (TroubleEnded("Asking fails"), INFO, "Asking fails no longer"),
    (
        PollingInstead("s", "stream 's'", "app", "E"),
        WARNING,
        (
            "Registering the consumer app of stream 's' was refused. Until this worker is "
            "restarted, records are fetched by polling, as fall_back_to_polling asks: E"
        ),
    ),
    (ConsumerDeregistered("arn", None), INFO, "Deregistered the consumer arn"),
    (
        ConsumerDeregistered("arn", "E"),
        WARNING,
        "Deregistering the consumer arn failed; it stays registered and is billed: E",
    ),
    (
        WorkerStarted("w", "app", "stream 's' in eu-west-1", "efo", "LATEST", 10.0),
        INFO,
        (
            "Worker w has started: application 'app' reads stream 's' in eu-west-1 (efo), from "
            "LATEST where a shard has no lease; failover_time is 10 s"
        ),
    ),
    (
        WorkerReport(60.0, 4, 61_260, 400, "s3"),
        INFO,
        "4 shards, 1,021.0 records/s, 0.4 s behind (s3)",
    ),
    (WorkerReport(60.0, 1, 0, None, None), INFO, "1 shard, 0.0 records/s, lag unknown"),
    (ShutdownBegan("w", 2, None), INFO, "Worker w shuts down; it reads 2 shards"),
    (
        ShutdownBegan("w", 1, "ProcessorError: wrong"),
        WARNING,
        "Worker w shuts down; it reads 1 shard: ProcessorError: wrong",
    ),
    (
        WorkerEnded("w", 123.4, 10_230, False, None),
        INFO,
        "Worker w has ended after 123 s: 10,230 records processed",
    ),
    (
        WorkerEnded("w", 1.0, 1, True, None),
        WARNING,
        (
            "Worker w has ended after 1.0 s: 1 record processed; the shutdown did not wait for all "
            "record processors, so records without a checkpoint are processed again"
        ),
    ),
    (
        WorkerEnded("w", 1.0, 0, False, "ValueError: x"),
        WARNING,
        "Worker w has ended after 1.0 s: 0 records processed; ValueError: x",
    ),
    (
        taken(LeaseOrigin.UNOWNED),
        INFO,
        "Took s0, which had no owner; its checkpoint is 7:0",
    ),
    (
        taken(LeaseOrigin.HANDED_OVER, "v"),
        INFO,
        (
            "Took s0 from worker v, which has released it at this worker's request; its checkpoint "
            "is 7:0"
        ),
    ),
    (
        taken(LeaseOrigin.EXPIRED, "v", 10.04),
        INFO,
        "Took s0 from worker v, which has not renewed its lease for 10.0 s; its checkpoint is 7:0",
    ),
    (
        taken(LeaseOrigin.LATE_HANDOVER, "v", 41.0),
        INFO,
        "Took s0 from worker v, which has not released it within 41.0 s; its checkpoint is 7:0",
    ),
    (
        taken(LeaseOrigin.LEGACY_OWNER, "v"),
        INFO,
        "Took s0 from worker v, which does not support handoffs; its checkpoint is 7:0",
    ),
    (
        taken(LeaseOrigin.OWN),
        INFO,
        "Took s0, which the lease table assigns to this worker; its checkpoint is 7:0",
    ),
    (
        ended(LeaseEnd.HANDED_OVER, "v"),
        INFO,
        "Released s0 to worker v after 61.2 s: another worker requested it; its checkpoint is 7:0",
    ),
    (
        ended(LeaseEnd.SHARD_FINISHED),
        INFO,
        (
            "Released s0 after 61.2 s: the shard has ended, and all of its records are processed; "
            "its checkpoint is 7:0"
        ),
    ),
    (
        ended(LeaseEnd.SHUTDOWN, "v"),
        INFO,
        "Released s0 to worker v after 61.2 s: this worker shuts down; its checkpoint is 7:0",
    ),
    (
        ended(LeaseEnd.SHUTDOWN, None, "Slow down."),
        WARNING,
        (
            "Gave up s0 after 61.2 s: this worker shuts down; its checkpoint is 7:0. Its lease "
            "could not be released, and has to expire before another worker takes it: Slow down."
        ),
    ),
    (
        ended(LeaseEnd.STREAM_LEFT),
        INFO,
        ("Released s0 after 61.2 s: this worker no longer reads its stream; its checkpoint is 7:0"),
    ),
    (
        ended(LeaseEnd.STOPPED),
        WARNING,
        (
            "Released s0 after 61.2 s: on_error stopped the shard on this worker; its checkpoint "
            "is 7:0"
        ),
    ),
    (
        ended(LeaseEnd.PROCESSING_TIME),
        WARNING,
        (
            "Released s0 after 61.2 s: process_records exceeded processing_time_limit; its "
            "checkpoint is 7:0"
        ),
    ),
    (
        ended(LeaseEnd.CONSUMER_DIED),
        WARNING,
        "Released s0 after 61.2 s: the thread that read the shard has died; its checkpoint is 7:0",
    ),
    *(
        (
            ended(reason, error="Slow down."),
            WARNING,
            (
                "Lost s0 after 61.2 s: DETAIL; its checkpoint is 7:0, and records after it are "
                "processed again. The last renewal failed: Slow down."
            ),
        )
        for reason in (
            LeaseEnd.GIVEN_UP,
            LeaseEnd.EXPIRED,
            LeaseEnd.TAKEN,
            LeaseEnd.RESET,
            LeaseEnd.DELETED,
            LeaseEnd.DUPLICATE_WORKER,
        )
    ),
    (
        ended(LeaseEnd.EXPIRED),
        WARNING,
        (
            "Lost s0 after 61.2 s: DETAIL; its checkpoint is 7:0, and records after it are "
            "processed again"
        ),
    ),
    (
        HandoffRequested("s0", "s0", "v"),
        INFO,
        "Requested s0 from worker v, which has more than its share",
    ),
    (
        OwnerSilent("v", tuple(f"s{n}" for n in range(7)), 10.25),
        WARNING,
        (
            "Worker v has not renewed s0, s1, s2, s3, s4 and 2 more for 10.2 s: it has died or "
            "cannot write to the lease table, and other workers take its shards"
        ),
    ),
    (
        RenewalFailed(2, 3, "Slow down."),
        WARNING,
        "2 of 3 leases could not be renewed now, and will be retried: Slow down.",
    ),
    (ShardStarted(*AT, "TRIM_HORIZON", "LATEST"), INFO, "Began to read s0 at TRIM_HORIZON"),
    (
        ShardEnded(*AT, ("s1", "s2"), 7),
        INFO,
        (
            "Finished s0: the shard has ended, and all of its records are checkpointed; its "
            "children are s1, s2"
        ),
    ),
    (
        ShardEnded(*AT, (), 7),
        INFO,
        "Finished s0: the shard has ended, and all of its records are checkpointed",
    ),
    (ShardStopped(*AT, "ValueError: x"), ERROR, "Stopped shard s0 of 's', as on_error asks."),
    (
        failed(BatchAction.RETRY),
        ERROR,
        (
            "process_records raised on records 1:0 to 3:0 of shard s0 of 's': ValueError: x "
            "[failure f]"
        ),
    ),
    (
        failed(BatchAction.SPLIT, is_again=True),
        WARNING,
        (
            "process_records raised on records 1:0 to 3:0 of shard s0 of 's', again: "
            "ValueError: x [failure f]"
        ),
    ),
    (
        failed(BatchAction.RELEASE),
        WARNING,
        (
            "process_records raised on records 1:0 to 3:0 of shard s0 of 's', while the shard was "
            "being released: ValueError: x [failure f]"
        ),
    ),
    (
        failed(BatchAction.RELEASE, failure=None),
        WARNING,
        (
            "process_records raised on records 1:0 to 3:0 of shard s0 of 's', while the shard was "
            "being released: ValueError: x"
        ),
    ),
    (
        RecordsSkipped(*AT, 1, "3:0", "3:0"),
        ERROR,
        "Skipped record 3:0 of shard s0 of 's', as on_error asks.",
    ),
    (
        RecordsSkipped(*AT, 0, "", ""),
        ERROR,
        "Skipped an empty batch of shard s0 of 's', as on_error asks.",
    ),
    (
        DeadLettersStored(*AT, 2, "3:0", "4:0"),
        ERROR,
        "Stored records 3:0 to 4:0 of shard s0 of 's' as dead letters.",
    ),
    (TaskFailed(*AT, "It failed", FAILURE, False), ERROR, "It failed: ValueError: x [failure f]"),
    (
        TaskFailed(*AT, "It failed", FAILURE, True),
        WARNING,
        "It failed, again: ValueError: x [failure f]",
    ),
    (
        CheckpointRefused(*AT, "gone"),
        WARNING,
        "The last automatic checkpoint of shard s0 of 's' was refused: gone",
    ),
    (ParentsLost(KEY, "s0", "s", ("s1",), "It is lost."), WARNING, "It is lost."),
    (DataLost(*AT, "All is lost."), WARNING, "All is lost."),
    (
        OldRecordsSkipped(*AT, 12),
        INFO,
        "Skipping to 12 (epoch ms) in shard s0 of 's', as skip_older_than asks",
    ),
    (
        ProcessingTimeExceeded(*AT, 61.25, 60.0, False),
        ERROR,
        "process_records has taken 61.2 s on shard s0 of 's'; processing_time_limit is 60 s.",
    ),
    (
        ProcessingTimeExceeded(*AT, 61.25, 60.0, True),
        ERROR,
        (
            "process_records has taken 61.2 s on shard s0 of 's'; processing_time_limit is 60 s. "
            "The shard's lease is released."
        ),
    ),
    (ReaderDied(*AT), ERROR, "The consumer of shard s0 of 's' died without shutting down."),
    (WorkerFailed("w", "wrong"), ERROR, "The worker w shuts down: wrong"),
    (
        TableMissing("w", "no table"),
        ERROR,
        "The worker w keeps running, but without leases: no table",
    ),
    (TableFound("w"), INFO, "The lease table has leases again: the worker w resumes"),
    (
        ShutdownOverdue(("s0", "s1")),
        WARNING,
        (
            "The time for the shutdown is up, and the record processors of s0, s1 have not "
            "finished. Their leases are released: other workers process the records since the last "
            "checkpoint again. If the processors need longer, raise shutdown_timeout."
        ),
    ),
    (TakingFailed("no"), WARNING, "Taking leases failed and will be retried: no"),
    (
        ShardSyncFailed("s", "stream 's'", "no"),
        WARNING,
        "Shard sync of stream 's' failed and will be retried: no",
    ),
    (ShardSyncRecovered("s", "stream 's'"), INFO, "Shard sync of stream 's' succeeds again"),
    (TakingRecovered(8.25), INFO, "Leases can be taken again, after 8.2 s"),
    (RenewalRecovered(8.25), INFO, "All leases can be renewed again, after 8.2 s"),
    (
        StreamFailing("s", "stream 's'", "no"),
        WARNING,
        "stream 's' cannot be read now, and is tried again; other streams are not affected: no",
    ),
    (StreamReadable("s", "stream 's'"), INFO, "stream 's' can be read now"),
    (
        StreamMadeAnew("s", "stream 's'", "1:s:7", "1:s:8"),
        WARNING,
        (
            "stream 's' was deleted and made anew: it is read as 1:s:8 from now on. What was not "
            "read of 1:s:7 is gone with that stream."
        ),
    ),
    (
        StreamRemoved("s", "stream 's'"),
        INFO,
        "stream 's' is no longer among the streams of the application",
    ),
]


OF_SEVERAL: list[tuple[Event, str]] = [
    (
        LeaseTaken(KEY, "s0", LeaseOrigin.UNOWNED, None, None, "7:0"),
        "Took 1:s:7:s0, which had no owner; its checkpoint is 7:0",
    ),
    (
        LeaseEnded(KEY, "s0", LeaseEnd.SHUTDOWN, "DETAIL", None, 61.25, "7:0"),
        "Released 1:s:7:s0 after 61.2 s: this worker shuts down; its checkpoint is 7:0",
    ),
    (
        LeaseEnded(KEY, "s0", LeaseEnd.SHUTDOWN, "DETAIL", None, 61.25, "7:0", "Slow down."),
        (
            "Gave up 1:s:7:s0 after 61.2 s: this worker shuts down; its checkpoint is 7:0. Its "
            "lease could not be released, and has to expire before another worker takes it: Slow "
            "down."
        ),
    ),
    (
        LeaseEnded(KEY, "s0", LeaseEnd.EXPIRED, "DETAIL", None, 61.25, "7:0"),
        (
            "Lost 1:s:7:s0 after 61.2 s: DETAIL; its checkpoint is 7:0, and records after it are "
            "processed again"
        ),
    ),
    (
        HandoffRequested(KEY, "s0", "v"),
        "Requested 1:s:7:s0 from worker v, which has more than its share",
    ),
]


@pytest.mark.parametrize(("event", "text"), OF_SEVERAL)
def test_with_several_streams_a_line_names_the_stream(
    caplog: pytest.LogCaptureFixture, event: Event, text: str
) -> None:
    assert event.line().text == text
    caplog.set_level(logging.INFO)
    EventLog("app", "w")(event)
    (line,) = caplog.records
    assert line.shard == KEY  # type: ignore[attr-defined]


@pytest.mark.parametrize(("event", "level", "text"), LINES)
def test_the_line_of_an_event(event: Event, level: int, text: str) -> None:
    assert event.line() == (level, text)


def test_each_kind_of_event_reason_and_origin_has_a_line() -> None:
    found = [event for event, _, _ in LINES]
    assert {type(event) for event in found} == KINDS
    reasons = {event.reason for event in found if isinstance(event, LeaseEnded)}
    assert reasons == set(LeaseEnd)
    origins = {event.origin for event in found if isinstance(event, LeaseTaken)}
    assert origins == set(LeaseOrigin)


def test_each_event_is_raised_at_one_place() -> None:
    """What follows from an event, a log line or a counter, is then the same for all its causes."""
    root = Path(sparkinesis.__file__).parent
    names = {kind.__name__ for kind in KINDS}
    calls = [
        node.func.id
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert {name: calls.count(name) for name in names} == dict.fromkeys(names, 1)


def test_a_line_names_its_place_whichever_thread_raises_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log = EventLog("app", "w")
    of_shard, of_worker = taken(LeaseOrigin.OWN), ShutdownBegan("w", 2, None)
    log(of_shard)
    log(of_worker)
    found = [
        (line.application, line.worker, line.shard, line.sparkinesis_event)  # type: ignore[attr-defined]
        for line in caplog.records
    ]
    assert found == [("app", "w", "s0", of_shard), ("app", "w", "-", of_worker)]


def test_lines_below_the_level_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    log = EventLog("app", "w")
    log(taken(LeaseOrigin.OWN))
    log(ended(LeaseEnd.EXPIRED))
    assert [line.levelno for line in caplog.records] == [logging.WARNING]
