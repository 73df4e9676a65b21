"""The context of a call: its instant, region, limits and fault, besides the typed request.

Also the conversions that several operations make between the model and requests or responses.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.faults import Fault
from sparkinesis.local.model.limits import TOKEN_LIFE_MS, Bucket, Limits
from sparkinesis.local.model.queue import Queue
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import unseal
from sparkinesis.local.service_errors import KinesisError

# moto's account id, so that STS returns the account of the streams.
ACCOUNT = "123456789012"
NO_FAULT = Fault()

Json = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


class Region:
    """The streams and queues of one region, and the account's settings and use of quotas there.

    queues: by id. queues_made: how many there were, with those that are gone.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.streams: dict[str, Stream] = {}
        self.queues: dict[str, Queue] = {}
        self.queues_made = 0
        self.commitment = Commitment()
        self.account_use: dict[str, Bucket] = {}
        # The latest second that began sequence numbers of a deleted stream, by name, so that a new
        # stream of the same name never repeats them.
        self.born_before: dict[str, int] = {}

    def stream(self, name: str, now: int) -> Stream | None:
        """Return a stream after applying the changes that are due; None if it does not exist."""
        stream = self.streams.get(name)
        if stream is None:
            return None
        stream.settle(now)
        if stream.is_gone(now):
            self.born_before[name] = stream.key_space.last_born_s
            del self.streams[name]
            return None
        return stream

    def all_streams(self, now: int) -> list[Stream]:
        """Return all streams, by name, as `stream` does; forget those that are gone."""
        found = [self.stream(name, now) for name in sorted(self.streams)]
        return [stream for stream in found if stream is not None]

    def queue(self, queue_id: str, now: int) -> Queue | None:
        """Return a queue after applying the changes that are due; None if it does not exist."""
        queue = self.queues.get(queue_id)
        if queue is None:
            return None
        queue.settle(now)
        if queue.is_gone(now):
            del self.queues[queue_id]
            return None
        return queue

    def all_queues(self, now: int, stream: Stream | None = None) -> list[Queue]:
        """Return all queues, or those of a stream, by name; forget those that are gone."""
        found = [self.queue(queue_id, now) for queue_id in [*self.queues]]
        queues = [queue for queue in found if queue is not None]
        if stream is not None:
            queues = [queue for queue in queues if queue.stream is stream]
        return sorted(queues, key=lambda queue: queue.name)


class Delays(NamedTuple):
    """The durations of changes: of a stream or queue, of a stream's shards, and of a consumer."""

    stream_ms: int = 0
    reshard_ms: int = 0
    consumer_ms: int = 0


NO_DELAYS = Delays()


@dataclasses.dataclass
class Context:
    """A call in progress. `stream`, `shard`, `records` and `bytes` are for the call log.

    limits, empty_pages: see `LocalKinesis`.
    now: when the call began, in ms.
    """

    operation: str
    region: Region
    now: int
    limits: Limits | None = None
    empty_pages: int = 0
    delays: Delays = NO_DELAYS
    fault: Fault = NO_FAULT
    stream: str | None = None
    shard: str | None = None
    records: int = 0
    bytes: int = 0

    def find(self, name: str | None, arn: str | None, *, active: bool = False) -> Stream:
        """Return the stream that a request names, after applying the changes that are due.

        active: raise unless the stream is ACTIVE.
        Raises: KinesisError.
        """
        if arn is not None:
            arn_name = arn.rpartition("/")[2]
            if name is not None and name != arn_name:
                raise service_errors.invalid_argument(
                    f"StreamName {name} and StreamARN {arn} name different streams."
                )
            name = arn_name
        if name is None:
            raise service_errors.invalid_argument(
                "Either StreamName or StreamARN must be provided."
            )
        stream = self.region.stream(name, self.now)
        if stream is None or (arn is not None and arn != stream.arn):
            raise service_errors.stream_not_found(name, ACCOUNT)
        if active and stream.status != "ACTIVE":
            raise service_errors.not_active(name, ACCOUNT, stream.status)
        return stream

    def find_serving(self, name: str | None, arn: str | None) -> Stream:
        """Return a stream as `find` does, for records: not while CREATING or DELETING."""
        stream = self.find(name, arn)
        if not stream.is_serving:
            raise service_errors.stream_not_found(stream.name, ACCOUNT)
        return stream

    def find_queue(self, arn: str) -> Queue:
        """Return a queue after applying the changes that are due. Raises: KinesisError."""
        queue = self.region.queue(queue_id(arn) or "", self.now)
        if queue is None or queue.arn != arn:
            raise service_errors.queue_not_found(arn, ACCOUNT)
        return queue

    def find_serving_queue(self, arn: str) -> Queue:
        """Return a queue as `find_queue` does, for records: not while CREATING or DELETING."""
        queue = self.find_queue(arn)
        check_serving(queue)
        return queue

    def end_dry_run(self, dry_run: bool | None, stream: Stream) -> None:
        """End a dry run that would succeed, or that is one too many. Raises: KinesisError."""
        if not dry_run:
            return
        quota = self.limits
        if quota and not stream.use.dry_runs.take(self.now, 1, quota.stream_dry_runs):
            raise service_errors.dry_run_throttled(stream.name, ACCOUNT)
        raise service_errors.dry_run()

    def meter_account(self) -> None:
        """Count the call against the quota of its operation. Raises: KinesisError."""
        rate = self.limits.account_calls.get(self.operation) if self.limits else None
        if rate is None:
            return
        use = self.region.account_use.setdefault(self.operation, Bucket())
        if not use.take(self.now, 1, rate):
            raise service_errors.limit_exceeded(f"Rate exceeded for account {ACCOUNT}.")


def check_serving(queue: Queue) -> None:
    """Raise KinesisError for calls on records of a queue that is CREATING or DELETING."""
    if not queue.is_serving:
        code = "ResourceNotFoundException"
        raise service_errors.queue_not_active(queue.name, ACCOUNT, queue.status, code)


def queue_id(arn: str) -> str | None:
    """Return the id in a queue's ARN; None for another ARN."""
    return arn.partition(":queue/")[2] or None


def resume(text: str, kind: type[T], now: int) -> T:
    """Unseal the NextToken of a listing and check its age. Raises: KinesisError."""
    token = unseal(text, kind)
    if token is None:
        raise service_errors.invalid_argument("Invalid NextToken.")
    if now - cast(Any, token).issued_ms > TOKEN_LIFE_MS:
        raise KinesisError(
            "ExpiredNextTokenException",
            f"The NextToken is older than {TOKEN_LIFE_MS} milliseconds.",
        )
    return token


_FARTHEST_MS = 1 << 62


def shard_json(shard: Shard) -> Json:
    """Return a shard as in the responses of ListShards and DescribeStream."""
    numbers = {"StartingSequenceNumber": shard.starting_sequence_number}
    ending = shard.ending_sequence_number
    if ending is not None:
        numbers["EndingSequenceNumber"] = ending
    answer: Json = {
        "ShardId": shard.id,
        "HashKeyRange": shard.hash_range,
        "SequenceNumberRange": numbers,
    }
    for name, parent in zip(
        ("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False
    ):
        answer[name] = parent
    return answer


def millis(seconds: float) -> int:
    """Convert an instant of a request to ms, clamped to what a NextToken can hold."""
    return round(min(max(seconds * 1000, -_FARTHEST_MS), _FARTHEST_MS))


_MINIMUM_MS = 24 * 3_600_000


@dataclasses.dataclass
class Commitment:
    """The minimum throughput billing commitment, which unlocks warm throughput.

    A commitment lasts for at least 24 hours: disabled sooner, it ends after them, unless it is
    enabled again before.

    started_ms: None before the first commitment. ended_ms: the end, which may lie in the future;
    None for an enabled commitment.
    """

    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def earliest_end_ms(self) -> int | None:
        return None if self.started_ms is None else self.started_ms + _MINIMUM_MS

    def status(self, now: int) -> str:
        if self.started_ms is None:
            return "DISABLED"
        if self.ended_ms is None:
            return "ENABLED"
        return "DISABLED" if now >= self.ended_ms else "ENABLED_UNTIL_EARLIEST_ALLOWED_END"

    def holds(self, now: int) -> bool:
        return self.status(now) != "DISABLED"

    def enable(self, now: int) -> None:
        if not self.holds(now):
            self.started_ms = now
        self.ended_ms = None

    def disable(self, now: int) -> None:
        earliest = self.earliest_end_ms
        if earliest is not None and self.ended_ms is None:
            self.ended_ms = max(now, earliest)
