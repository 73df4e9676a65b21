"""A queue of the local Kinesis behind a network, and what it did: each delivery, and its end."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from sparkinesis.local import LocalKinesis
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.kinesis import CallResult, PendingCall
from sparkinesis.stream.kpl.pack import aggregate
from tests.simulation.kinesis import READ_TIMEOUT, REGION, refuse, request_body
from tests.simulation.network import Answer, Network, operation_of
from tests.simulation.scheduler import Process, Scheduler

EPOCH_MS = 1_700_000_000_000
STREAM = "flights"
_ANSWER_TIMEOUT = 10.0
"""Seconds that the product waits for the answer to any other call than a receive."""
_DAY = 86_400.0
_FAILED = ("ThrottlingException", "InternalFailureException")


@dataclass(eq=False)
class Receive:
    """A call of ReceiveQueueRecords."""

    process: Process
    sent: float
    limit: int
    is_over: bool = False


@dataclass(eq=False)
class Delivery:
    """A record in the answer to a receive."""

    handle: str
    receive: Receive
    record_id: str
    names: tuple[str, ...]
    """Its user records."""
    count: int
    at: float
    until: float
    """The end of its hold, as the service has it."""
    arrived: float | None = None
    """When the process got it; None: never."""
    end: str | None = None
    """``acknowledged`` or ``returned``; None: its hold ended, or lasts."""
    extensions: int = 0
    """The calls under way that extend its hold."""


@dataclass(eq=False)
class _Waiting:
    """A poll at the service."""

    receive: Receive
    pending: PendingCall
    answer: Answer
    until: float = 0.0
    is_rung: bool = False


class Watch(Protocol):
    """Is told what happens, right before."""

    def receives(self, receive: Receive) -> None:
        """A receive is sent."""

    def acknowledges(self, delivery: Delivery) -> None:
        """An acknowledgement is sent."""

    def delivers(self, delivery: Delivery) -> None:
        """The queue delivers a record."""

    def returns(self, delivery: Delivery) -> None:
        """A return is sent."""

    def is_being_returned(self, delivery: Delivery, seconds: int) -> bool:
        """Whether a call that hides it for so long returns a record, and does not extend a hold."""


@dataclass(eq=False)
class QueueService:
    """The queue, and boto3's client as far as `QueueClient` uses it.

    ``find_fault``: decides the fault of a call, or of what happens within one.
    """

    scheduler: Scheduler
    find_fault: Callable[[str, Process, bool], str | None]
    watch: Watch
    visibility: int
    max_receives: int | None
    keeps: float | None
    receives: list[Receive] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    """By receipt handle."""
    put_at: dict[str, float] = field(default_factory=dict)
    """When each user record was put."""

    def __post_init__(self) -> None:
        self.kinesis = kinesis = LocalKinesis(clock=self.now_ms, limits=False)
        mode = {"StreamMode": "ON_DEMAND"}
        kinesis.call("CreateStream", StreamName=STREAM, StreamModeDetails=mode)
        letters: dict[str, Any] = {"TargetType": "NONE"}
        if self.max_receives is not None:
            letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": self.max_receives}
        start = {"Type": "TRIM_HORIZON"}
        stream = kinesis._regions[REGION].streams[STREAM].arn
        made = kinesis.call(
            "CreateQueue",
            QueueName="orders",
            StreamConfigurationList=[{"StreamARN": stream, "StartingPosition": start}],
            QueueAttributes={
                "VisibilityTimeoutSeconds": self.visibility,
                "DeadLetterConfiguration": letters,
            },
        )
        self.arn = made["QueueDescription"]["QueueARN"]
        (self.queue,) = kinesis._regions[REGION].queues.values()
        self._network = Network(
            self.scheduler, lambda _, operation, process, __="": self._fault(operation, process)
        )
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._waiting: list[_Waiting] = []
        self._looks = False
        self._caller: Process | None = None
        """The process whose call is being served."""
        kinesis.faults = self._fault_within

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.scheduler.now * 1000)

    def _seconds(self, ms: int) -> float:
        """Just behind an instant of the service's clock, which has whole milliseconds."""
        return (ms - EPOCH_MS) / 1000 + 0.0005

    def described(self) -> bytes:
        """The answer to DescribeQueue."""
        body = request_body({"QueueARN": self.arn})
        return self.kinesis.serve("DescribeQueue", body, region=REGION).body

    # --- what the stream and the queue have

    def put(self, count: int, *, is_packed: bool, size: int) -> None:
        numbers = range(len(self.put_at), len(self.put_at) + count)
        names = [f"n{number}" for number in numbers]
        data = [name.encode() + b" " * size * 1024 for name in names]
        stored: dict[bytes, tuple[str, ...]] = {
            one: (name,) for one, name in zip(data, names, strict=True)
        }
        if is_packed:
            (blob,) = aggregate([("k", None, one) for one in data], 1 << 20)
            stored = {blob.data: tuple(names)}
        for blob_data, held in stored.items():
            self._names[blob_data] = held
            self.put_at.update(dict.fromkeys(held, self.scheduler.now))
            key = f"k{len(self._names)}"
            self.kinesis.call("PutRecord", StreamName=STREAM, Data=blob_data, PartitionKey=key)

    def change_timeout(self, seconds: int) -> None:
        attributes = {"VisibilityTimeoutSeconds": seconds}
        self.kinesis.call("UpdateQueue", QueueARN=self.arn, QueueAttributes=attributes)

    def has_expired(self, name: str, now: float | None = None) -> bool:
        now = self.scheduler.now if now is None else now
        return self.keeps is not None and now >= self.put_at[name] + self.keeps - 0.01

    @property
    def is_empty(self) -> bool:
        """True if nothing is received, or can be, but dead letters."""
        now = self.now_ms()
        delivered = {name for one in self.deliveries.values() for name in one.names}
        return not (
            self.queue.in_flight(now)
            or any(self.queue._is_kept(entry, now) for entry in self.queue._visible[False])
            or any(not self.has_expired(name) for name in self.put_at.keys() - delivered)
        )

    def dead_letters(self) -> set[str]:
        """The user records in dead letters, which are received by this."""
        found: set[str] = set()
        while True:
            answer = self.kinesis.call(
                "ReceiveDeadLetterQueueRecords",
                QueueARN=self.arn,
                Limit=10,
                VisibilityTimeoutSeconds=43_200,
            )
            if not answer["QueueRecords"]:
                return found
            for one in answer["QueueRecords"]:
                assert self.max_receives is not None
                # The receive of a dead letter counts as well, here.
                if one["ReceiveCount"] > self.max_receives:
                    found.update(self._names[base64.b64decode(one["Data"])])

    # --- boto3's client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, operation_of(name))

    def _call(self, operation: str, **request: Any) -> Any:
        task = self.scheduler.current
        assert task is not None
        process, network = task.process, self._network
        if operation == "ReceiveQueueRecords":
            receive = Receive(process, self.scheduler.now, request["Limit"])
            self.watch.receives(receive)
            self.receives.append(receive)
            begin = partial(self._begin, receive, request)
            try:
                body, deliveries = network.poll("kinesis", operation, begin, timeout=READ_TIMEOUT)
            finally:
                receive.is_over = True
            for delivery in deliveries:
                delivery.arrived = self.scheduler.now
            return {"Body": body}
        returned, extended = set(), []
        for entry in request["Entries"]:
            delivery = self.deliveries[entry["ReceiptHandle"]]
            if operation == "AcknowledgeQueueRecords":
                self.watch.acknowledges(delivery)
            elif self.watch.is_being_returned(delivery, entry["VisibilityTimeoutSeconds"]):
                self.watch.returns(delivery)
                returned.add(delivery)
            else:
                extended.append(delivery)
                delivery.extensions += 1
        serve = partial(self._serve, operation, request, returned)
        try:
            return {"Body": network.call("kinesis", operation, serve, timeout=_ANSWER_TIMEOUT)}
        finally:
            for delivery in extended:
                delivery.extensions -= 1

    def _fault(self, operation: str, process: Process) -> str | None:
        return self.find_fault(operation, process, False)

    def _fault_within(self, call: Call) -> Fault | None:
        if call.operation == "PutRecord":
            skew = 0.0 if self.keeps is None else self.keeps - _DAY
            return Fault(arrival_skew_ms=round(skew * 1000))
        if self._caller is None:
            return None
        kind, rng = self.find_fault(call.operation, self._caller, True), self.scheduler.rng
        if kind == "entries":
            some = frozenset(rng.sample(range(10), rng.randint(1, 10)))
            return Fault(code=rng.choice(_FAILED), entries=some)
        return Fault(turns_order=kind == "turns", forgets_acknowledgement=kind == "forgets")

    def _served(self, operation: str, request: Mapping[str, Any], process: Process) -> CallResult:
        self._caller = process
        is_receive = operation == "ReceiveQueueRecords"
        body = request_body(request)
        try:
            return self.kinesis.serve(operation, body, region=REGION, may_wait=is_receive)
        finally:
            self._caller = None

    def _serve(
        self,
        operation: str,
        request: Mapping[str, Any],
        returned: set[Delivery],
        process: Process,
    ) -> bytes:
        """One call that does not wait, at once."""
        outcome = self._served(operation, request, process)
        refuse(operation, outcome)
        for one in msgspec.json.decode(outcome.body)["Successful"]:
            handle = one["ReceiptHandle"]
            delivery, entry = self.deliveries[handle], self.queue._held.get(handle)
            if operation == "AcknowledgeQueueRecords":
                delivery.end = "acknowledged"
            elif entry is None or entry.visible_ms <= self.now_ms() or delivery in returned:
                delivery.end = "returned"
            else:
                delivery.until = self._seconds(entry.visible_ms)
        return outcome.body

    def _begin(
        self,
        receive: Receive,
        request: Mapping[str, Any],
        process: Process,
        answer: Answer,
    ) -> None:
        """Begin a receive, which has its answer as soon as there are records."""
        outcome = self._served("ReceiveQueueRecords", request, process)
        pending = outcome.waiting
        if pending is None or pending.poll is None:
            self._answer(receive, outcome, answer)
            return
        waiting = _Waiting(receive, pending, answer)
        self._waiting.append(waiting)
        pending.poll.alarm.wake = partial(self._ring, waiting)
        self._go_on(waiting)

    def _ring(self, waiting: _Waiting) -> None:
        """Have a poll look again: in the order of polls, whoever rings them in whatever order."""
        waiting.is_rung = True
        if not self._looks:
            self._looks = True
            self.scheduler.at(self.scheduler.now, self._look)

    def _look(self) -> None:
        self._looks = False
        for waiting in list(self._waiting):
            if waiting.is_rung:
                self._go_on(waiting)

    def _go_on(self, waiting: _Waiting) -> None:
        waiting.is_rung = False
        step = self.kinesis.resume(waiting.pending)
        if isinstance(step, CallResult):
            self._waiting.remove(waiting)
            self.kinesis.leave(waiting.pending)
            self._answer(waiting.receive, step, waiting.answer)
            return
        waiting.until = until = self._seconds(step.until_ms)

        def time_is_up() -> None:
            if waiting in self._waiting and waiting.until == until:
                self._go_on(waiting)

        self.scheduler.at(until, time_is_up)

    def _answer(
        self,
        receive: Receive,
        outcome: CallResult,
        answer: Answer,
    ) -> None:
        if outcome.error is not None:
            try:
                refuse("ReceiveQueueRecords", outcome)
            except Exception as error:  # noqa: BLE001 - botocore's, for the caller
                answer(None, error)
            return
        found = []
        for one in msgspec.json.decode(outcome.body)["QueueRecords"]:
            handle = one["ReceiptHandle"]
            delivery = Delivery(
                handle,
                receive,
                one["RecordId"],
                self._names[base64.b64decode(one["Data"])],
                one["ReceiveCount"],
                self.scheduler.now,
                self._seconds(self.queue._held[handle].visible_ms),
            )
            self.watch.delivers(delivery)
            self.deliveries[handle] = delivery
            found.append(delivery)
        answer((outcome.body, found), None)
