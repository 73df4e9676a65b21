"""What was called, and how a test makes a call go wrong.

A fault plan is any function `Call -> Fault | None`; it is asked once per call, after the request
has been decoded and before it takes effect:

    def plan(call: Call) -> Fault | None:
        if call.operation == "GetRecords" and call.ordinal == 3:
            return Fault.error("ProvisionedThroughputExceededException")
        return None
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, as a fault plan sees it.

    stream: the stream's name; the table's for a DynamoDB call; None if the request names none.
    shard: the shard that the request, or the iterator in it, names.
    ordinal: 1 for the first call of this operation on this stream and shard, and so on.
    """

    operation: str
    region: str
    stream: str | None
    shard: str | None
    ordinal: int
    time_ms: int


@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong. The parts combine: an error may also be slow.

    code, message, status: answer this error; the call has no effect.
    entries: with a code, PutRecords answers it for these entries only (0-based), and takes the
    others. BatchExecuteStatement of DynamoDB likewise for these statements; their codes are those
    of BatchStatementError, such as ThrottlingError, TransactionConflict or InternalServerError.
    takes_effect: with a code, the call, or the entries, take effect all the same: the client is
    left in doubt, as after an internal error of the service.
    delay_ms: the call takes effect at once, its answer comes this much later (in real time).
    drop: the connection is reset without an answer, "before" or "after" the call took effect.
    cut_after: SubscribeToShard's connection is reset after so many bytes of the event stream. Some
    of them do not arrive, if they are more than the client has read or its system holds for it.
    stream_code, stream_after: SubscribeToShard's event stream ends with this exception (and
    `message`) after so many events.
    arrival_skew_ms: records that are put carry an arrival time shifted by this much.
    omit: fields that the answer of GetRecords, or each event of SubscribeToShard, leaves out, such
    as ChildShards, which the service may leave out too.
    begins_early: GetShardIterator and SubscribeToShard begin so many records before the place asked
    for, as some other servers do.
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
    begins_early: int = 0

    @classmethod
    def error(cls, code: str, message: str = "Injected fault", status: int = 400) -> Fault:
        return cls(code=code, message=message, status=status)

    @property
    def fails_whole_call(self) -> bool:
        """Whether its error is the answer to the whole call, and not to entries of the call."""
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
    """One call that was answered (or dropped, whose error is "Dropped").

    An event of a subscription is one, too: SubscribeToShardEvent.

    records, bytes: what was put or got; bytes are of data and partition keys, before base64.
    error: the code of the error answered, None for success.
    access_key: the id of the key that signed it, None for a call in this process.
    """

    time_ms: int
    operation: str
    region: str
    stream: str | None
    shard: str | None
    records: int
    bytes: int
    error: str | None
    access_key: str | None = None


class CallLog:
    """The latest calls, oldest first (`capacity` of them), and how many there were of each kind."""

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
        """Forgets the calls. Ordinals go on."""
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
        """The calls that match everything given; `since_ms` is inclusive, `until_ms` exclusive."""
        return [
            call
            for call in list(self._calls)
            if (operation is None or call.operation == operation)
            and (stream is None or call.stream == stream)
            and (shard is None or call.shard == shard)
            and (since_ms is None or call.time_ms >= since_ms)
            and (until_ms is None or call.time_ms < until_ms)
        ]

    def count(
        self,
        operation: str | None = None,
        *,
        stream: str | None = None,
        shard: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> int:
        return len(
            self.select(operation, stream=stream, shard=shard, since_ms=since_ms, until_ms=until_ms)
        )

    def per_shard(self, operation: str, stream: str | None = None) -> Counter[str]:
        """How often `operation` was called on each shard."""
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
        """The most calls that fell into any stretch of `window_ms` (half-open)."""
        times = [call.time_ms for call in self.select(operation, stream=stream, shard=shard)]
        times.sort()
        most = start = 0
        for end, time_ms in enumerate(times):
            while time_ms - times[start] >= window_ms:
                start += 1
            most = max(most, end - start + 1)
        return most
