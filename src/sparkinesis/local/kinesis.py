"""Kinesis, whole: streams held in memory, per region, behind one lock. No I/O.

A call happens at one instant, read from the clock when it begins. `operations` says what each one
does, `http` puts them on the wire.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from sparkinesis.local import errors, requests
from sparkinesis.local.clock import Clock, system_clock
from sparkinesis.local.codec import Codec, JsonCodec
from sparkinesis.local.errors import ConnectionDroppedError, KinesisError
from sparkinesis.local.faults import Call, CallLog, CallRecord, Fault, FaultPlan
from sparkinesis.local.limits import Limits
from sparkinesis.local.operations import OPERATIONS, Result
from sparkinesis.local.operations.context import NO_FAULT, Context, Json, Region
from sparkinesis.local.tokens import ListShardsToken, ShardIterator, unseal

DEFAULT_REGION = "us-east-1"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call went: a body to answer with `status`, or nothing at all (`dropped`).

    delay_ms: how long the answer is to be held back, by a fault plan.
    """

    status: int = 200
    body: bytes = b""
    error: str | None = None
    delay_ms: int = 0
    dropped: bool = False


class LocalKinesis:
    """All streams of one account.

    limits: True for the service's, False or None for none, or your own; may be set at any time.
    faults: a fault plan; may be set at any time.
    empty_pages: how many empty answers a new iterator gives before records, when there are any.
    reshard_delay_ms: how long a stream is UPDATING after a reshard was asked for, by the clock.
    calls: the log of calls.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        limits: Limits | bool | None = True,
        faults: FaultPlan | None = None,
        empty_pages: int = 0,
        reshard_delay_ms: int = 0,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.empty_pages = empty_pages
        self.reshard_delay_ms = reshard_delay_ms
        self.calls = CallLog()
        self.limits = limits
        self._lock = threading.RLock()
        self._regions: dict[str, Region] = {}
        self._json = JsonCodec()

    @property
    def limits(self) -> Limits | None:
        return self._limits

    @limits.setter
    def limits(self, value: Limits | bool | None) -> None:
        self._limits = Limits() if value is True else value or None

    # Entry points

    def call(self, operation: str, *, region: str = DEFAULT_REGION, **request: Any) -> Json:
        """One call in this process, in the names of the wire: `call("GetRecords", Limit=1, ...)`.

        Data is given as bytes and comes back base64-encoded; datetimes become seconds.
        Raises: KinesisError; ConnectionDroppedError. Delays of a fault plan are not waited for.
        """
        body = msgspec.json.encode(_wire(request))
        outcome = self.serve(operation, body, region=region)
        if outcome.dropped:
            raise ConnectionDroppedError(operation)
        answer: Json = msgspec.json.decode(outcome.body) if outcome.body else {}
        if outcome.error is not None:
            raise KinesisError(outcome.error, answer["message"], outcome.status)
        return answer

    def serve(
        self,
        operation: str,
        body: bytes,
        *,
        region: str = DEFAULT_REGION,
        codec: Codec | None = None,
        access_key: str | None = None,
    ) -> Outcome:
        """One call as it came in. Errors of the service are outcomes, not exceptions."""
        codec = codec or self._json
        with self._lock:
            context = self._context(operation, region)
            try:
                result = self._execute(context, body, codec)
            except KinesisError as error:
                answer = codec.encode_error(error.code, error.message)
                outcome = Outcome(error.status, answer, error.code, context.fault.delay_ms)
            except ConnectionDroppedError:
                outcome = Outcome(error="Dropped", dropped=True, delay_ms=context.fault.delay_ms)
            else:
                outcome = Outcome(body=codec.encode(result), delay_ms=context.fault.delay_ms)
            self._log(context, outcome.error, access_key)
            return outcome

    def fault_for(
        self, operation: str, region: str, stream: str | None, shard: str | None = None
    ) -> Fault:
        """Asks the fault plan. Also for calls of other services that pass by this one."""
        with self._lock:
            ordinal = self.calls.next_ordinal(operation, region, stream, shard)
            if self.faults is None:
                return NO_FAULT
            call = Call(operation, region, stream, shard, ordinal, self.clock())
            return self.faults(call) or NO_FAULT

    def note(
        self,
        operation: str,
        region: str,
        stream: str | None,
        error: str | None,
        access_key: str | None = None,
    ) -> None:
        """Logs a call of another service."""
        with self._lock:
            context = self._context(operation, region)
            context.stream = stream
            self._log(context, error, access_key)

    # Dispatch

    def _context(self, operation: str, region: str) -> Context:
        found = self._regions.get(region)
        if found is None:
            found = self._regions[region] = Region(region)
        return Context(
            operation,
            found,
            self.clock(),
            self._limits,
            self.empty_pages,
            self.reshard_delay_ms,
        )

    def _execute(self, context: Context, body: bytes, codec: Codec) -> Result:
        operation = OPERATIONS.get(context.operation)
        if operation is None:
            raise errors.unknown_operation(context.operation)
        request = codec.decode(context.operation, body, operation.request, operation.trusting)
        context.stream, context.shard = _target(request)
        fault = context.fault = self.fault_for(
            context.operation, context.region.name, context.stream, context.shard
        )
        if fault.drop == "before":
            raise ConnectionDroppedError
        if fault.code is not None and not fault.entries:
            raise KinesisError(fault.code, fault.message, fault.status)
        context.meter_account()
        result = operation.handle(context, request)
        if fault.drop == "after":
            raise ConnectionDroppedError
        return result

    def _log(self, context: Context, error: str | None, access_key: str | None) -> None:
        self.calls.append(
            CallRecord(
                context.now,
                context.operation,
                context.region.name,
                context.stream,
                context.shard,
                context.records,
                context.bytes,
                error,
                access_key,
            )
        )


def _target(request: requests.Request) -> tuple[str | None, str | None]:
    """The stream and the shard that a request names, for fault plans and the call log."""
    if isinstance(request, requests.GetRecords):
        token = unseal(request.shard_iterator, ShardIterator)
        return (token.stream, token.shard) if token is not None else (None, None)
    if isinstance(request, requests.ListShards) and request.next_token is not None:
        listing = unseal(request.next_token, ListShardsToken)
        return (listing.stream if listing is not None else None), None
    stream: str | None = getattr(request, "stream_name", None)
    arn: str | None = getattr(request, "stream_arn", None) or getattr(request, "consumer_arn", None)
    if stream is None and arn is not None:
        stream = arn.partition(":stream/")[2].partition("/")[0]
    shard: str | None = (
        getattr(request, "shard_id", None)
        or getattr(request, "shard_to_split", None)
        or getattr(request, "shard_to_merge", None)
    )
    return stream, shard


def _wire(value: Any) -> Any:
    """Python values as a client of the service would send them."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return {name: _wire(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wire(item) for item in value]
    return value
