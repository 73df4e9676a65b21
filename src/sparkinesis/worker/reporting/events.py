"""The events in the life of a worker and of its shards, as values; those of leases are below it.

`sparkinesis.lease.events` has the rest. Each event is raised at a single place in the code, and
told by `sparkinesis.worker.reporting.teller`: one log line, the counters that follow from it, and
a call of ``on_event``. So these cannot differ.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from sparkinesis.lease import events as of_leases
from sparkinesis.public import public
from sparkinesis.status import Failure


@public
class BatchAction(Enum):
    """What becomes of the records of a ``process_records`` that raised."""

    RETRY = "retry"
    """They are delivered again, as ``on_error`` asks."""
    SPLIT = "split"
    """They are delivered in halves, to find those that fail."""
    SKIP = "skip"
    DEAD_LETTER = "dead letter"
    STOP = "stop"
    """The shard is left to another worker."""
    WAIT = "wait"
    """They are delivered again: a checkpoint failed, for a reason outside of the records."""
    RELEASE = "release"
    """The shard is being released, and its next owner gets them."""
    NONE_LEFT = "none left"
    """Nothing is left of them: all were checkpointed before the error, or the shard was reset."""


class Span(NamedTuple):
    """The records of a batch."""

    records: int
    first: str
    """The position of the first record; empty if there is none."""
    last: str

    def __str__(self) -> str:
        if not self.records:
            return "an empty batch"
        if self.first == self.last:
            return f"record {self.first}"
        return f"records {self.first} to {self.last}"


@public
class ShardEvent(msgspec.Struct, frozen=True):
    """An event of one shard that the worker reads."""

    lease: str
    """The key of the shard's lease."""
    shard_id: str
    stream: str
    """The stream's name."""
    place: str
    """The shard, its stream and the application, for people."""


@public
class ShardStarted(ShardEvent, frozen=True):
    """A shard's record processor is initialized, and the shard is read from now on."""

    position: str
    """The position from which the shard is read."""
    checkpoint: str


@public
class ShardEnded(ShardEvent, frozen=True):
    """All records of a shard that was split or merged are processed and checkpointed."""

    children: tuple[str, ...]
    """The shard ids of the children that the service named; they may begin now."""
    records: int
    """User records processed since this worker took the shard."""


@public
class ShardStopped(ShardEvent, frozen=True):
    """``on_error`` stops a shard: its lease is released, and this worker leaves it alone."""

    error: str


@public
class BatchFailed(ShardEvent, frozen=True):
    """A call of ``process_records`` raised."""

    records: int
    first: str
    """The position of the first record; empty for a batch without records."""
    last: str
    action: BatchAction
    error: str
    failure: Failure | None
    """The error, counted; None if the lease was lost, which is no failure."""
    is_again: bool
    """True if the call before has failed on the same lines."""


@public
class RecordsSkipped(ShardEvent, frozen=True):
    """Records that cannot be processed were skipped, as ``on_error`` asks."""

    records: int
    first: str
    last: str


@public
class DeadLettersStored(ShardEvent, frozen=True):
    """Records that cannot be processed were given to the dead-letter target."""

    records: int
    first: str
    last: str


@public
class TaskFailed(ShardEvent, frozen=True):
    """Something else failed on a shard: another method, a checkpoint, fetching, a dead letter."""

    what: str
    """What failed, and whether it is tried again."""
    failure: Failure
    is_again: bool


@public
class CheckpointRefused(ShardEvent, frozen=True):
    """The last automatic checkpoint was refused, because the lease is lost."""

    error: str


@public
class DataLost(ShardEvent, frozen=True):
    """Records had expired before they were read."""

    what: str
    """What is lost, and where reading resumes."""


@public
class OldRecordsSkipped(ShardEvent, frozen=True):
    """A shard is read from a later time on, as ``skip_older_than`` asks."""

    until_ms: int
    """The time from which records are read (epoch ms)."""


@public
class ProcessingTimeExceeded(ShardEvent, frozen=True):
    """A call of ``process_records`` has taken longer than ``processing_time_limit``."""

    seconds: float
    limit: float
    gives_up: bool
    """True if the lease is released, by ``give_up_after_limit``."""


@public
class ReaderDied(ShardEvent, frozen=True):
    """The part of the worker that reads a shard has died; the lease is released."""


@public
class WorkerFailed(msgspec.Struct, frozen=True):
    """An error ends the worker."""

    worker_id: str
    error: str


@public
class TableMissing(msgspec.Struct, frozen=True):
    """The lease table was deleted: the worker runs on, without leases."""

    worker_id: str
    error: str


@public
class TableFound(msgspec.Struct, frozen=True):
    """The lease table has leases again."""

    worker_id: str


@public
class ShutdownOverdue(msgspec.Struct, frozen=True):
    """The time for a shutdown is up, and some record processors have not finished."""

    leases: tuple[str, ...]
    """The keys of their leases, which are released."""


@public
class TakingFailed(msgspec.Struct, frozen=True):
    """The lease table could not be read, or no lease taken; the worker tries again."""

    error: str


@public
class TakingRecovered(msgspec.Struct, frozen=True):
    """The lease table can be read again, and leases be taken."""

    seconds: float
    """The time since the first failure."""


@public
class StreamEvent(msgspec.Struct, frozen=True):
    """An event of a stream of the application."""

    stream: str
    """The stream's name."""
    place: str
    """The stream's name and its region or ARN, for people; of a former stream
    ``<account>:<stream>:<creation epoch>``."""


@public
class ShardSyncFailed(StreamEvent, frozen=True):
    """The shards of a stream could not be compared with the leases; the worker tries again."""

    error: str


@public
class ShardSyncRecovered(StreamEvent, frozen=True):
    """The comparison of a stream's shards with the leases works again."""


@public
class StreamFailing(StreamEvent, frozen=True):
    """A stream cannot be read now, and is tried again; the others are read."""

    error: str


@public
class StreamReadable(StreamEvent, frozen=True):
    """A stream that could not be read can be read now."""


@public
class StreamMadeAnew(StreamEvent, frozen=True):
    """A stream was deleted and made anew: what was not read of the old one is gone."""

    before: str
    """The old stream: ``<account>:<stream>:<creation epoch>``."""
    now: str
    """The stream that is read from now on."""


@public
class StreamRemoved(StreamEvent, frozen=True):
    """A stream is no longer among those of the application."""


@public
class FormerStreamDeleted(StreamEvent, frozen=True):
    """The leases of a stream that left the application were deleted."""

    leases: int
    seconds: float
    """The time for which no worker had read the stream."""


@public
class FormerStreamKept(StreamEvent, frozen=True):
    """The leases of a former stream stay: another worker has begun to read the stream."""


@public
class TroubleBegan(msgspec.Struct, frozen=True):
    """Something fails that concerns all of several streams, and is tried again."""

    what: str
    """What fails."""
    meanwhile: str
    """What happens until it works again."""
    error: str


@public
class TroubleEnded(msgspec.Struct, frozen=True):
    """Something that failed works again."""

    what: str
    """What failed."""


@public
class PollingInstead(StreamEvent, frozen=True):
    """Registering the consumer was refused: records are polled, by ``fall_back_to_polling``."""

    consumer: str
    error: str


@public
class ConsumerDeregistered(msgspec.Struct, frozen=True):
    """The last worker has deregistered the consumer, or has failed to."""

    consumer_arn: str
    error: str | None
    """The error; the consumer then stays registered, and is billed."""


Event: TypeAlias = (
    of_leases.Event
    | ShardStarted
    | ShardEnded
    | ShardStopped
    | BatchFailed
    | RecordsSkipped
    | DeadLettersStored
    | TaskFailed
    | CheckpointRefused
    | DataLost
    | OldRecordsSkipped
    | ProcessingTimeExceeded
    | ReaderDied
    | WorkerFailed
    | TableMissing
    | TableFound
    | ShutdownOverdue
    | TakingFailed
    | TakingRecovered
    | ShardSyncFailed
    | ShardSyncRecovered
    | StreamFailing
    | StreamReadable
    | StreamMadeAnew
    | StreamRemoved
    | FormerStreamDeleted
    | FormerStreamKept
    | TroubleBegan
    | TroubleEnded
    | PollingInstead
    | ConsumerDeregistered
)


class Teller(Protocol):
    """Takes the events of a worker, from any thread. It returns at once, and raises nothing."""

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Tell an event. ``cause``: the error whose traceback the log line shows."""

    def close(self) -> None:
        """Tell what is left to be told, for a few seconds at most."""


class TellNobody:
    """Tells nobody. A `Teller`."""

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


TELL_NOBODY = TellNobody()
