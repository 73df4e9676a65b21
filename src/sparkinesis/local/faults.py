"""Fault plans, which make calls fail, and the log of calls.

A fault plan is any function `Call -> Fault | None`. It is called once per request, after the
request has been decoded and before it takes effect:

    def plan(call: Call) -> Fault | None:
        if call.operation == "GetRecords" and call.ordinal == 3:
            return Fault.error("ProvisionedThroughputExceededException")
        return None
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, as passed to a fault plan.

    stream: the name of the stream, also of a queue's, or of the table for a DynamoDB call; None if
    the request names none.
    shard: the shard that the request or its iterator names.
    ordinal: 1 for the first call of this operation on this stream and shard, 2 for the second.
    """

    operation: str
    region: str
    stream: str | None
    shard: str | None
    ordinal: int
    time_ms: int


@dataclasses.dataclass(frozen=True)
class Fault:
    """The faults of one call. Fields combine: an error may also be slow.

    code, message, status: return this error; the call has no effect.
    entries: with a code, PutRecords returns the error for these entries only (0-based) and stores
    the others. DynamoDB's BatchExecuteStatement does the same for these statements; the codes are
    those of BatchStatementError, such as ThrottlingError, TransactionConflict or
    InternalServerError. So do the calls on receipt handles of a queue, in ``Failed``.
    takes_effect: with a code, the call (or the entries) takes effect although the error is
    returned, as after an internal error of the service.
    delay_ms: the call takes effect at once; its response is sent this many ms later (real time).
    drop: the connection is reset without a response, "before" or "after" the call took effect.
    cut_after: SubscribeToShard's connection is reset after this many bytes of the event stream. The
    client may receive fewer: a reset discards the bytes that it has not yet read.
    stream_code, stream_after: SubscribeToShard's event stream ends with this exception (and
    `message`) after this many events.
    arrival_skew_ms: added to the arrival time of the records that the call puts.
    omit: fields that are left out of GetRecords' response, or of each event of SubscribeToShard,
    such as ChildShards, which the service may leave out too.
    turns_order: the records of a receive from a queue come in the reverse order.
    forgets_acknowledgement: an acknowledgement to a queue succeeds, and its records are visible
    again, as on Kinesis on rare occasions.
    begins_early: GetShardIterator and SubscribeToShard start this many records before the requested
    position, as some other servers do.
    """

    code: str | None = None
    message: str = "Injected fault"
    status: int = 400
    entries: frozenset[int] = frozenset()
    takes_effect: bool = False
    delay_ms: int = 0
    drop: Literal["before", "after"] | None = None
    cut_after: int | None = None
    stream_code: str | None = None
    stream_after: int = 0
    arrival_skew_ms: int = 0
    omit: frozenset[str] = frozenset()
    turns_order: bool = False
    forgets_acknowledgement: bool = False
    begins_early: int = 0

    @classmethod
    def error(cls, code: str, message: str = "Injected fault", status: int = 400) -> Fault:
        return cls(code=code, message=message, status=status)

    @property
    def fails_whole_call(self) -> bool:
        """True if the error is the response to the whole call, not to single entries."""
        return self.code is not None and not self.entries

    @classmethod
    def delay(cls, ms: int) -> Fault:
        return cls(delay_ms=ms)

    @classmethod
    def dropped(cls, when: Literal["before", "after"] = "before") -> Fault:
        return cls(drop=when)


FaultPlan = Callable[[Call], "Fault | None"]


@dataclasses.dataclass(frozen=True)
class CallRecord:
    """One finished call. An event of a subscription is logged as a call of SubscribeToShardEvent.

    time_ms: when it began.
    records, bytes: the records put or returned; bytes count data and partition keys, before base64.
    error: the error code of the response; None for success, "Dropped" for a connection that a fault
    drops, or a client that waits for a queue's records.
    access_key: the id of the access key that signed the call; None for a call in this process.
    """

    time_ms: int
    operation: str
    region: str
    stream: str | None
    shard: str | None
    records: int = 0
    bytes: int = 0
    error: str | None = None
    access_key: str | None = None


class CallLog:
    """The latest `capacity` calls, oldest first; and a counter of calls for `Call.ordinal`."""

    def __init__(self, capacity: int = 200_000) -> None:
        self._calls: deque[CallRecord] = deque(maxlen=capacity)
        self._ordinals: Counter[tuple[str, str, str | None, str | None]] = Counter()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[CallRecord]:
        return iter(list(self._calls))

    def append(self, record: CallRecord) -> None:
        self._calls.append(record)

    def clear(self) -> None:
        """Remove all calls. Ordinals continue."""
        self._calls.clear()

    def next_ordinal(
        self, operation: str, region: str, stream: str | None, shard: str | None
    ) -> int:
        key = (operation, region, stream, shard)
        self._ordinals[key] += 1
        return self._ordinals[key]

    def select(
        self,
        operation: str | None = None,
        *,
        stream: str | None = None,
        shard: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[CallRecord]:
        """Return the matching calls; `since_ms` is inclusive, `until_ms` exclusive."""
        return [
            call
            for call in list(self._calls)
            if (operation is None or call.operation == operation)
            and (stream is None or call.stream == stream)
            and (shard is None or call.shard == shard)
            and (since_ms is None or call.time_ms >= since_ms)
            and (until_ms is None or call.time_ms < until_ms)
        ]

    def count(self, operation: str | None = None, **where: Any) -> int:
        """Count the calls that `select` returns for the same arguments."""
        return len(self.select(operation, **where))

    def per_shard(self, operation: str, stream: str | None = None) -> Counter[str]:
        """Count the calls of `operation` by shard."""
        calls = self.select(operation, stream=stream)
        return Counter(call.shard for call in calls if call.shard is not None)

    def peak(
        self,
        operation: str,
        *,
        window_ms: int,
        stream: str | None = None,
        shard: str | None = None,
    ) -> int:
        """Return the largest number of calls within any window of `window_ms` (half-open)."""
        times = [call.time_ms for call in self.select(operation, stream=stream, shard=shard)]
        times.sort()
        most = start = 0
        for end, time_ms in enumerate(times):
            while time_ms - times[start] >= window_ms:
                start += 1
            most = max(most, end - start + 1)
        return most
