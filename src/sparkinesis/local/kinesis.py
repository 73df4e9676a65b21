"""The local Kinesis: streams in memory, per region, behind one lock. No I/O.

A call happens at one instant, read from the clock when the call begins. `operations` implements the
calls; `wire` serves them over HTTP.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.clock import Clock, IdleUntil, ManualClock, system_clock
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.encoding.codecs import Codec, JsonCodec
from sparkinesis.local.faults import Call, CallLog, CallRecord, Fault, FaultPlan
from sparkinesis.local.model.limits import Limits
from sparkinesis.local.model.queue import Poll, Queue, QueueLook
from sparkinesis.local.model.registered_consumer import EVENT, PushedEvent, ServedSubscription, Step
from sparkinesis.local.model.tokens import ListShardsToken, ShardIterator, unseal
from sparkinesis.local.operations import OPERATIONS, Done, Result, queues
from sparkinesis.local.operations.context import (
    NO_FAULT,
    Context,
    Delays,
    Json,
    Region,
    queue_id,
)
from sparkinesis.local.service_errors import ConnectionDroppedError, KinesisError

DEFAULT_REGION = "us-east-1"


@dataclasses.dataclass(frozen=True)
class CallResult:
    """The result of a call: a response with `status` and `body`, or no response (`dropped`).

    delay_ms: a fault plan's delay of the response.
    subscription: the subscription that SubscribeToShard began; its events are the body. The caller
    has to pass it to `LocalKinesis.release`. cut_after: see `Fault`.
    waiting: the call waits for its result: see `LocalKinesis.resume`.
    """

    status: int = 200
    body: bytes = b""
    error: str | None = None
    delay_ms: int = 0
    dropped: bool = False
    subscription: ServedSubscription | None = None
    cut_after: int | None = None
    waiting: PendingCall | None = None


@dataclasses.dataclass(eq=False)
class PendingCall:
    """A call that is not finished. poll: of a call that waits for a queue's records."""

    context: Context
    codec: Codec
    access_key: str | None
    poll: Poll | None = None
    is_finished: bool = False


class LocalKinesis:
    """All streams of one account.

    limits: True for the service's limits, False or None for none, or your own; may be set at any
    time.
    faults: a fault plan; may be set at any time.
    empty_pages: how many empty responses a new iterator returns before records, if there are any.
    With any, a closed shard's end comes in an empty response after its last records.
    stream_delay_ms: how long a stream or queue stays CREATING, UPDATING or DELETING, by the clock.
    reshard_delay_ms: how long a stream stays UPDATING during a reshard; None for stream_delay_ms.
    consumer_delay_ms: how long a consumer stays CREATING or DELETING, by the clock.
    calls: the log of calls.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        limits: Limits | bool | None = True,
        faults: FaultPlan | None = None,
        empty_pages: int = 0,
        stream_delay_ms: int = 0,
        reshard_delay_ms: int | None = None,
        consumer_delay_ms: int = 0,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.empty_pages = empty_pages
        self.stream_delay_ms = stream_delay_ms
        self.reshard_delay_ms = reshard_delay_ms
        self.consumer_delay_ms = consumer_delay_ms
        self.calls: CallLog = CallLog()
        self.limits = limits
        self._lock = threading.RLock()
        self._regions: dict[str, Region] = {}
        self._json = JsonCodec()
        if isinstance(clock, ManualClock):
            clock.on_advance(self._tick)

    @property
    def limits(self) -> Limits | None:
        return self._limits

    @limits.setter
    def limits(self, value: Limits | bool | None) -> None:
        self._limits = Limits() if value is True else value or None

    # Entry points

    def call(self, operation: str, *, region: str = DEFAULT_REGION, **request: Any) -> Json:
        """Make one call in this process, as in `call("GetRecords", ShardIterator=..., Limit=1)`.

        Data is passed as bytes and returned as base64; datetimes become seconds. For
        SubscribeToShard, whose response is a stream of events, use `subscribe`. A fault plan's
        delays are ignored, and a receive from a queue does not wait for records: it returns those
        that are visible.
        Raises: KinesisError; ConnectionDroppedError.
        """
        outcome = self._call(operation, region, request)
        if outcome.subscription is not None:
            self.release(outcome.subscription)
            raise TypeError("SubscribeToShard returns a stream of events: use subscribe()")
        answer: Json = msgspec.json.decode(outcome.body) if outcome.body else {}
        return answer

    def subscribe(self, *, region: str = DEFAULT_REGION, **request: Any) -> ServedSubscription:
        """Call SubscribeToShard in this process; `next_step` returns its events, `release` ends it.

        Raises: KinesisError; ConnectionDroppedError.
        """
        subscription = self._call("SubscribeToShard", region, request).subscription
        assert subscription is not None
        return subscription

    def _call(self, operation: str, region: str, request: Mapping[str, Any]) -> CallResult:
        outcome = self.serve(operation, msgspec.json.encode(_wire(request)), region=region)
        if outcome.dropped:
            raise ConnectionDroppedError(operation)
        if outcome.error is not None:
            message = msgspec.json.decode(outcome.body)["message"]
            raise KinesisError(outcome.error, message, outcome.status)
        return outcome

    def serve(
        self,
        operation: str,
        body: bytes,
        *,
        region: str = DEFAULT_REGION,
        codec: Codec | None = None,
        access_key: str | None = None,
        may_wait: bool = False,
    ) -> CallResult:
        """Execute one encoded request. The service's errors are outcomes, not exceptions.

        may_wait: return a receive that has to wait for a queue's records as ``CallResult.waiting``.
        """
        with self._lock:
            context = self._context(operation, region)
            call = PendingCall(context, codec or self._json, access_key)
            execute = functools.partial(self._execute, context, body, call.codec)
            return self._attempt(call, execute, may_wait=may_wait)

    def resume(self, call: PendingCall) -> CallResult | IdleUntil:
        """Return the result of a call that waits, or how long it has to wait still.

        `call.poll.alarm` wakes the caller, who has to pass the call to `leave` in the end.
        """
        poll = call.poll
        assert poll is not None, "only a receive waits"
        with self._lock:
            outcome = self._attempt(call, lambda: poll, may_wait=True)
            return outcome if outcome.waiting is None else poll.wait()

    def leave(self, call: PendingCall) -> None:
        """End a call that waits: it has its result, or its client has gone."""
        with self._lock:
            if call.poll is not None:
                call.poll.close()
            if not call.is_finished:
                self._log(call, "Dropped")

    def _attempt(
        self, call: PendingCall, execute: Callable[[], Result], *, may_wait: bool
    ) -> CallResult:
        context, codec = call.context, call.codec
        try:
            result = execute()
            if isinstance(result, Poll):
                call.poll = result
                answer = queues.received(context, result, self.clock(), may_wait=may_wait)
                if answer is None:
                    return CallResult(waiting=call)
                result = answer
            result = _after_effect(context.fault, result)
        except KinesisError as error:
            encoded = codec.encode_error(error.code, error.message)
            outcome = CallResult(error.status, encoded, error.code, context.fault.delay_ms)
        except ConnectionDroppedError:
            outcome = CallResult(error="Dropped", dropped=True, delay_ms=context.fault.delay_ms)
        else:
            delay_ms, cut_after = context.fault.delay_ms, context.fault.cut_after
            if isinstance(result, ServedSubscription):
                outcome = CallResult(delay_ms=delay_ms, subscription=result, cut_after=cut_after)
            else:
                outcome = CallResult(body=codec.encode(result), delay_ms=delay_ms)
        self._log(call, outcome.error)
        return outcome

    def _log(self, call: PendingCall, error: str | None) -> None:
        context, call.is_finished = call.context, True
        where = (context.operation, context.region.name, context.stream, context.shard)
        read = (context.records, context.bytes)
        self.calls.append(CallRecord(context.now, *where, *read, error, call.access_key))

    def fault_for(
        self, operation: str, region: str, stream: str | None, shard: str | None = None
    ) -> Fault:
        """Call the fault plan for one request, which may be another service's."""
        with self._lock:
            ordinal = self.calls.next_ordinal(operation, region, stream, shard)
            if self.faults is None:
                return NO_FAULT
            call = Call(operation, region, stream, shard, ordinal, self.clock())
            return self.faults(call) or NO_FAULT

    def log_call(
        self,
        operation: str,
        region: str,
        stream: str | None,
        error: str | None,
        access_key: str | None = None,
    ) -> None:
        """Log a call of another service."""
        with self._lock:
            now = self.clock()
            call = CallRecord(now, operation, region, stream, None, 0, 0, error, access_key)
            self.calls.append(call)

    # Queues, for a test that waits until nothing is under way

    def look_at_queue(self, arn: str) -> QueueLook:
        """Return what is waiting and under way in a queue."""
        with self._lock:
            return self._queue(arn).look(self.clock())

    def end_receives(self, arn: str) -> None:
        """Have the receives from a queue that wait return, as if their time were over."""
        with self._lock:
            self._queue(arn).end_polls()

    def _queue(self, arn: str) -> Queue:
        return self._regions[arn.split(":")[3]].queues[queue_id(arn) or ""]

    # Subscriptions

    def next_step(self, subscription: ServedSubscription) -> Step:
        """Return the next event of a subscription, its end, or how long to wait."""
        with self._lock:
            now = self.clock()
            step = subscription.next(now, self._limits)
            if isinstance(step, PushedEvent):
                records, stream = step.page.records, subscription.stream.name
                region, shard = subscription.region, subscription.shard.id
                self.calls.append(
                    CallRecord(now, EVENT, region, stream, shard, records.count, records.bytes)
                )
            return step

    def release(self, subscription: ServedSubscription) -> None:
        """Close a subscription whose client has gone or has received the last event."""
        with self._lock:
            subscription.close()

    def timeout_s(self, until_ms: int) -> float | None:
        """Return the seconds until an instant of the clock; None for a `ManualClock`."""
        if isinstance(self.clock, ManualClock):
            return None
        return max(1, until_ms - self.clock()) / 1000

    def _tick(self, now: int) -> None:
        with self._lock:
            for region in self._regions.values():
                for stream in region.streams.values():
                    for consumer in stream.consumers.values():
                        for subscription in consumer.subscriptions.values():
                            subscription.alarm.tick(now)
                for queue in region.queues.values():
                    for poll in queue.polls:
                        poll.alarm.tick(now)

    # Dispatch

    def _context(self, operation: str, region: str) -> Context:
        found = self._regions.get(region)
        if found is None:
            found = self._regions[region] = Region(region)
        reshard_ms = self.reshard_delay_ms
        if reshard_ms is None:
            reshard_ms = self.stream_delay_ms
        delays = Delays(self.stream_delay_ms, reshard_ms, self.consumer_delay_ms)
        return Context(operation, found, self.clock(), self._limits, self.empty_pages, delays)

    def _execute(self, context: Context, body: bytes, codec: Codec) -> Result:
        operation = OPERATIONS.get(context.operation)
        if operation is None:
            raise service_errors.unknown_operation(context.operation)
        validation.check_known(context.operation)
        request = codec.decode(context.operation, body, operation.request, operation.trusting)
        context.stream, context.shard = _target(request, context.region)
        fault = context.fault = self.fault_for(
            context.operation, context.region.name, context.stream, context.shard
        )
        if fault.drop == "before":
            raise ConnectionDroppedError
        if fault.fails_whole_call and not fault.takes_effect:
            raise _injected(fault)
        context.meter_account()
        return operation.handle(context, request)


def _after_effect(fault: Fault, result: Done) -> Done:
    """Return the result of a call that took effect, unless its fault hides it."""
    if fault.drop != "after" and not fault.fails_whole_call:
        return result
    if isinstance(result, ServedSubscription):
        result.close()
    raise ConnectionDroppedError if fault.drop == "after" else _injected(fault)


def _injected(fault: Fault) -> KinesisError:
    return KinesisError(fault.code or "", fault.message, fault.status)


def _wire(value: Any) -> Any:
    """Convert Python values to what a client of the service sends."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return {name: _wire(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wire(item) for item in value]
    return value


_HAVE_ARNS = ("stream", "consumer", "resource", "queue")


def _target(request: requests.Request, region: Region) -> tuple[str | None, str | None]:
    """Return the names of the stream and the shard; None for a missing one."""
    if isinstance(request, requests.GetRecords):
        token = unseal(request.shard_iterator, ShardIterator)
        return (token.stream, token.shard) if token is not None else (None, None)
    if isinstance(request, requests.ListShards) and request.next_token is not None:
        listing = unseal(request.next_token, ListShardsToken)
        return (listing.stream if listing is not None else None), None
    shard: str | None = (
        getattr(request, "shard_id", None)
        or getattr(request, "shard_to_split", None)
        or getattr(request, "shard_to_merge", None)
    )
    stream: str | None = getattr(request, "stream_name", None)
    return stream or _stream_of(_arn(request), region), shard


def _arn(request: requests.Request) -> str:
    """Return the ARN of a request; empty if it has none."""
    if isinstance(request, requests.CreateQueue):
        return request.stream_configuration_list[0].stream_arn
    arns = (getattr(request, f"{kind}_arn", None) for kind in _HAVE_ARNS)
    return next(filter(None, arns), "")


def _stream_of(arn: str, region: Region) -> str | None:
    """Return the name of the stream that an ARN names, or that a consumer or a queue reads."""
    if queue_id(arn) is None:
        return arn.partition(":stream/")[2].partition("/")[0] or None
    queue = region.queues.get(queue_id(arn) or "")
    return None if queue is None else queue.stream.name
