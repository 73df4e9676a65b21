"""The log lines of events: texts that name the reason and the other worker, and levels.

``events.txt`` holds the lines of `EVENTS`, as an operator reads them.
"""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import sparkinesis
from sparkinesis import events as of
from sparkinesis.events import Event
from sparkinesis.status import Failure

KINDS = {
    kind
    for kind in vars(of).values()
    if isinstance(kind, type) and issubclass(kind, Event) and not kind.__subclasses__()
}
AT = ("s0", "s0", "s", "shard s0 of 's'")
KEY = "1:s:7:s0"
"""The key of a lease in an application of several streams."""
QUEUE = ("q", "queue 'q' (id) in eu-west-1")
FAILURE = Failure("f", "what", "ValueError: x", "", 2, ("s0",))


def taken(
    origin: of.LeaseOrigin, previous: str | None = None, waited: float | None = None
) -> Event:
    return of.LeaseTaken("s0", "s0", origin, previous, waited, "7:0")


def ended(reason: of.LeaseEnd, other: str | None = None, error: str | None = None) -> Event:
    return of.LeaseEnded("s0", "s0", reason, "DETAIL", other, 61.25, "7:0", error)


def failed(
    action: of.BatchAction, *, is_again: bool = False, failure: Failure | None = FAILURE
) -> Event:
    return of.BatchFailed(*AT, 3, "1:0", "3:0", action, "ValueError: x", failure, is_again)


EVENTS: list[Event] = [
    of.LeaseCreated("s0", "s0", "LATEST"),
    of.LeaseDeleted("s0", "s0"),
    of.LeasesMissing("lease table 't'", None, "[0, 7]"),
    of.LeasesMissing("lease table 't'", "1:s:7", "[0, 7]"),
    of.ChildrenWaiting(KEY, "s0", ("s1", "s2")),
    of.ChildrenUnlisted("s0", "s0", "s", "stream 's'", 61.5),
    of.LeaseUnreadable("s0", "lease table 't'", "it has no checkpoint"),
    of.LeaseReadable("s0", "lease table 't'"),
    of.LeaseUnwritable("s0", "ServiceError: no"),
    of.LegacyWorkerSeen("w7", "lease table 't'"),
    of.FormerStreamDeleted("s", "1:s:7", 3, 61.5),
    of.FormerStreamKept("s", "1:s:7"),
    of.TroubleBegan("Asking fails", "will be retried", "E"),
    of.TroubleEnded("Asking fails"),
    of.PollingInstead("s", "stream 's'", "app", "E"),
    of.ConsumerDeregistered("arn", None),
    of.ConsumerDeregistered("arn", "E"),
    of.WorkerStarted("w", "app", "stream 's' in eu-west-1", "efo", "LATEST", 10.0),
    of.WorkerReport(60.0, 4, 61_260, 400, "s3"),
    of.WorkerReport(60.0, 1, 0, None, None),
    of.ShutdownBegan("w", 2, None),
    of.ShutdownBegan("w", 1, "ProcessorError: wrong"),
    of.WorkerEnded("w", 123.4, 10_230, False, None),
    of.WorkerEnded("w", 1.0, 1, True, None),
    of.WorkerEnded("w", 1.0, 0, False, "ValueError: x"),
    taken(of.LeaseOrigin.UNOWNED),
    taken(of.LeaseOrigin.HANDED_OVER, "v"),
    taken(of.LeaseOrigin.EXPIRED, "v", 10.04),
    taken(of.LeaseOrigin.LATE_HANDOVER, "v", 41.0),
    taken(of.LeaseOrigin.LEGACY_OWNER, "v"),
    taken(of.LeaseOrigin.OWN),
    ended(of.LeaseEnd.HANDED_OVER, "v"),
    ended(of.LeaseEnd.SHARD_FINISHED),
    ended(of.LeaseEnd.SHUTDOWN, "v"),
    ended(of.LeaseEnd.SHUTDOWN, None, "Slow down."),
    ended(of.LeaseEnd.STREAM_LEFT),
    ended(of.LeaseEnd.RANGE_READ),
    ended(of.LeaseEnd.STOPPED),
    ended(of.LeaseEnd.PROCESSING_TIME),
    ended(of.LeaseEnd.CONSUMER_DIED),
    *(
        ended(reason, error="Slow down.")
        for reason in (
            of.LeaseEnd.GIVEN_UP,
            of.LeaseEnd.EXPIRED,
            of.LeaseEnd.TAKEN,
            of.LeaseEnd.RESET,
            of.LeaseEnd.DELETED,
            of.LeaseEnd.DUPLICATE_WORKER,
        )
    ),
    ended(of.LeaseEnd.EXPIRED),
    of.HandoffRequested("s0", "s0", "v"),
    of.LeaseAssigned("s0", "s0", "v", None),
    of.LeaseAssigned("s0", "s0", "v", "w"),
    of.LeadershipChanged("w", True),
    of.LeadershipChanged("w", False),
    of.FleetRowsFailed("Slow down."),
    of.FleetRowsRecovered(),
    of.OwnerSilent("v", tuple(f"s{n}" for n in range(7)), 10.25),
    of.RenewalFailed(2, 3, "Slow down."),
    of.RenewalFailed(2, 3, "Slow down.", 18),
    of.ShardStarted(*AT, "TRIM_HORIZON", "LATEST"),
    of.ShardEnded(*AT, ("s1", "s2"), 7),
    of.ShardEnded(*AT, (), 7),
    of.ShardEnded(*AT, (), 7, True),
    of.ShardStopped(*AT, "ValueError: x"),
    failed(of.BatchAction.RETRY),
    failed(of.BatchAction.SPLIT, is_again=True),
    failed(of.BatchAction.RELEASE),
    failed(of.BatchAction.RELEASE, failure=None),
    of.RecordsSkipped(*AT, 1, "3:0", "3:0"),
    of.RecordsSkipped(*AT, 0, "", ""),
    of.DeadLettersStored(*AT, 2, "3:0", "4:0"),
    of.TaskFailed(*AT, "It failed", FAILURE, False),
    of.TaskFailed(*AT, "It failed", FAILURE, True),
    of.CheckpointRefused(*AT, "gone"),
    of.ParentsLost(KEY, "s0", "s", ("s1",), "It is lost."),
    of.DataLost(*AT, "All is lost."),
    of.OldRecordsSkipped(*AT, 12),
    of.ProcessingTimeExceeded(*AT, 61.25, 60.0, False),
    of.ProcessingTimeExceeded(*AT, 61.25, 60.0, True),
    of.ShardStandsStill(*AT, 61.25, 0, "process_records has not returned from record 1:0"),
    of.ShardWentOn(*AT, 75.0),
    of.ReaderDied(*AT),
    of.WorkerFailed("w", "wrong"),
    of.TableMissing("w", "no table"),
    of.TableFound("w"),
    of.ShutdownOverdue(("s0", "s1")),
    of.EventLoopBlocked("w", 1.25, "handle (app.py:7)"),
    of.TakingFailed("no"),
    of.TakingFailed("no", 1200),
    of.ShardSyncFailed("s", "stream 's'", "no"),
    of.ShardSyncRecovered("s", "stream 's'"),
    of.TakingRecovered(8.25),
    of.RenewalRecovered(8.25),
    of.StreamFailing("s", "stream 's'", "no"),
    of.StreamReadable("s", "stream 's'"),
    of.StreamMadeAnew("s", "stream 's'", "1:s:7", "1:s:8"),
    of.StreamRemoved("s", "stream 's'"),
    of.LeaseTaken(KEY, "s0", of.LeaseOrigin.UNOWNED, None, None, "7:0"),
    of.LeaseEnded(KEY, "s0", of.LeaseEnd.SHUTDOWN, "DETAIL", None, 61.25, "7:0"),
    of.LeaseEnded(KEY, "s0", of.LeaseEnd.SHUTDOWN, "DETAIL", None, 61.25, "7:0", "Slow down."),
    of.LeaseEnded(KEY, "s0", of.LeaseEnd.EXPIRED, "DETAIL", None, 61.25, "7:0"),
    of.HandoffRequested(KEY, "s0", "v"),
    of.HandlerFailed(*QUEUE, "r", 1, of.BatchAction.RETRY, 7, "ValueError: x"),
    of.HandlerFailed(*QUEUE, "r", 2, of.BatchAction.SKIP, None, "ValueError: x"),
    of.HandlerFailed(*QUEUE, "r", 3, of.BatchAction.DEAD_LETTER, None, "ValueError: x"),
    of.HandlerFailed(*QUEUE, "r", 1, of.BatchAction.STOP, None, "ValueError: x"),
    of.DeadLetterStored(*QUEUE, "r"),
    of.DeadLetterRefused(*QUEUE, "r", 8, "OSError: full"),
    of.HoldLost(*QUEUE, "r", "waiting"),
    of.HoldLost(*QUEUE, "r", "running"),
    of.HoldLost(*QUEUE, "r", "ended"),
    of.ReceivingFailed(*QUEUE, "ThrottlingException: slow", 1, 0.15, False),
    of.ReceivingFailed(*QUEUE, "ReadTimeoutError: late", 10, 20.0, True),
    of.ReceivingRecovered(*QUEUE, 8.25),
]


def test_the_line_of_each_event() -> None:
    lines = [event.line() for event in EVENTS]
    found = [f"{logging.getLevelName(level)} {text}" for level, text in lines]
    assert found == Path(__file__).with_name("events.txt").read_text("utf-8").splitlines()


def test_each_kind_of_event_reason_and_origin_has_a_line() -> None:
    assert {type(event) for event in EVENTS} == KINDS
    reasons = {event.reason for event in EVENTS if isinstance(event, of.LeaseEnded)}
    assert reasons == set(of.LeaseEnd)
    origins = {event.origin for event in EVENTS if isinstance(event, of.LeaseTaken)}
    assert origins == set(of.LeaseOrigin)


def test_each_event_is_raised_at_one_place() -> None:
    """What follows from an event, a log line or a counter, is then the same for all its causes.

    A worker that an error ends has leases, or consumes a queue.
    """
    root = Path(sparkinesis.__file__).parent
    names = {kind.__name__ for kind in KINDS}
    called = re.compile(rf"\b({'|'.join(names)})\(")
    texts = [path.read_text("utf-8") for path in root.rglob("*.py")]
    calls = [
        node.func.id
        for text in filter(called.search, texts)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    expected = {**dict.fromkeys(names, 1), "WorkerFailed": 2}
    assert {name: calls.count(name) for name in names} == expected
