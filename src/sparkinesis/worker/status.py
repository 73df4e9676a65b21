"""The values by which a worker reports its state and its failures."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.public import public
from sparkinesis.worker.lifecycle.states import ShardState


@public
@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The state of one shard that a worker consumes."""

    shard_id: str
    state: ShardState
    millis_behind_latest: int | None
    processing_for: float | None
    """The duration of the current call of ``process_records``, in seconds; None between calls."""
    records: int = 0
    """The number of user records in successful calls since this worker took the shard."""
    dropped: int = 0
    """The number of user records that ``hash_range_filter`` dropped in that time."""
    stream: str = ""
    """The stream's name."""
    lease: str = ""
    """The key of the shard's lease: the shard id or, in an application of several streams,
    ``<account>:<stream>:<creation epoch>:<shard id>``."""
    checkpoint: str = ""
    """The last checkpoint: ``<sequence number>:<sub-sequence number>``, or a sentinel."""
    checkpoint_age: float | None = None
    """Seconds since the first delivery that no checkpoint covers, or since the last checkpoint if
    that is later; 0 while everything delivered is checkpointed; None before ``initialize``."""


@public
@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The state of one stream of an application that reads several."""

    stream: str
    """The stream's name or ARN, as the application gives it."""
    identifier: str | None
    """``<account>:<stream>:<creation epoch>``; None as long as it is not known."""
    problem: str | None = None
    """The reason why the worker cannot read the stream now; None if it can."""
    failing_for: float | None = None
    """Seconds since when the worker has tried in vain; None without a problem."""


@public
@dataclass(frozen=True, slots=True)
class Failure:
    """An error that occurred in one worker or several, once or often.

    Errors of the same type, raised by the same lines, are one failure. Their messages may differ:
    most messages name a record.
    """

    fingerprint: str
    what: str
    """The action that failed at the last occurrence, with shard and records."""
    error: str
    """Type and message of the last occurrence."""
    traceback: str
    """The traceback of the first occurrence."""
    count: int
    shard_ids: tuple[str, ...]
    """The shards in which it occurred; of many, the first ones. With several streams, the keys of
    their leases."""
