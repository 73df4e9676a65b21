"""What a worker tells about itself, as values."""

from __future__ import annotations

from dataclasses import dataclass

from sparkinesis.public import public
from sparkinesis.worker.lifecycle.states import ShardState


@public
@dataclass(frozen=True, slots=True)
class ShardStatus:
    """What a worker does with one of its shards."""

    shard_id: str
    state: ShardState
    millis_behind_latest: int | None
    processing_for: float | None
    """Seconds that the present call of ``process_records`` has taken so far."""
    records: int = 0
    """User records processed since this worker took the shard; those of failed calls not."""
    dropped: int = 0
    """User records that ``hash_range_filter`` has dropped since this worker took the shard."""


@public
@dataclass(frozen=True, slots=True)
class Failure:
    """An error that met a worker, or several, any number of times.

    Errors are one failure if their type and the lines that raised them are the same, whatever their
    messages: those mostly name a record.
    """

    fingerprint: str
    what: str
    """What failed at last, with shard and records."""
    error: str
    """Type and message, the last ones."""
    traceback: str
    """Of the first."""
    count: int
    shard_ids: tuple[str, ...]
    """Where it was met; of many shards, the first ones."""
