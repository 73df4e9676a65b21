"""The errors of sparkinesis. Each message says what happened, where, and what to do.

::

    SparkinesisError
    ├── OptionError                     (ValueError)
    ├── ServiceError
    │   ├── LeaseTableUnavailableError
    │   └── CorruptEventStreamError
    ├── AccessDeniedError
    ├── StreamNotFoundError
    ├── DataLossError
    │   ├── ShardNotFoundError
    │   └── PositionNotFoundError
    ├── OffsetError                     (ValueError)
    ├── ExpiredIteratorError
    ├── InconsistentShardsError
    ├── ConsumerNotFoundError
    ├── ConsumerLimitError
    ├── RecordRefusedError              (ValueError)
    ├── RecordTooLargeError             (ValueError)
    ├── LeaseTableError
    ├── LeaseLostError
    ├── UnfinishedResetError
    ├── DuplicateWorkerIdError
    ├── CheckpointError                 (ValueError)
    ├── ProcessorError                  (TypeError)
    ├── SinkUnavailableError
    ├── SchemaMismatchError             (ValueError)
    ├── DeadLetterError
    ├── FleetError
    └── LocalServerError

All of them are imported from ``sparkinesis``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkinesis.public import public


@public
class SparkinesisError(Exception):
    """The base class of every error that sparkinesis raises on purpose."""


# --- Calls to AWS


@public
class OptionError(SparkinesisError, ValueError):
    """An option is unknown, is missing, or has an unusable value. No call was made.

    The message names the option and its allowed values, or the nearest option that exists.
    """


@public
class ServiceError(SparkinesisError):
    """A call to AWS failed, and every retry failed as well, or no retry can help.

    The message quotes the service. Run the query or the worker again once the service answers.
    """


@public
class LeaseTableUnavailableError(ServiceError):
    """DynamoDB throttles calls or cannot be reached, and every retry failed.

    The same call may succeed later. The KCL calls this ``ThrottlingException`` and
    ``KinesisClientLibDependencyException``.
    """


@public
class CorruptEventStreamError(ServiceError):
    """The bytes received over a subscription are not valid event-stream messages.

    Workers and queries subscribe again by themselves.
    """


@public
class AccessDeniedError(SparkinesisError):
    """The credentials do not permit a call. The call is not retried.

    The message names the missing permission. Add it to the role or user.
    """


@public
class StreamNotFoundError(SparkinesisError):
    """The stream does not exist in this region and account.

    Check the stream's name, the region and the endpoint.
    """


# --- Streams, positions and records


@public
class DataLossError(SparkinesisError):
    """Records were removed from the stream before they were read.

    The message names the shard and the position, and the option that continues with the oldest
    record that is left.
    """


@public
class ShardNotFoundError(DataLossError):
    """The shard does not exist any more, so its unread records are lost."""


@public
class PositionNotFoundError(DataLossError):
    """Kinesis refuses a sequence number: the shard has no such record, or no longer keeps it."""


@public
class OffsetError(SparkinesisError, ValueError):
    """The offset in Spark's checkpoint was not written by this source, or by another query.

    Use the checkpoint location that belongs to the query, or a new one.
    """


@public
class ExpiredIteratorError(SparkinesisError):
    """A shard iterator is older than five minutes. Get a new one after the last record read."""


@public
class InconsistentShardsError(SparkinesisError):
    """The shards that ListShards returned do not fit together, as may happen during a reshard.

    Nothing was written. Try again in a second.
    """


@public
class ConsumerNotFoundError(SparkinesisError):
    """The registered consumer (enhanced fan-out) does not exist, or is being deregistered.

    Check the consumer's ARN, or give a name and let the worker register the consumer.
    """


@public
class ConsumerLimitError(SparkinesisError):
    """The stream has the maximum number of registered consumers (enhanced fan-out).

    Deregister a consumer that is no longer needed, or read by polling.
    """


@public
class RecordRefusedError(SparkinesisError, ValueError):
    """A row cannot become a record: it is too large, or its key or data is invalid or missing.

    No record of the row's Arrow batch was put.
    """


@public
class RecordTooLargeError(SparkinesisError, ValueError):
    """A user record does not fit into an aggregated record of the requested maximum size.

    Raise ``max_size``, or put the record without aggregation.
    """


# --- Leases and workers


@public
class LeaseTableError(SparkinesisError):
    """A KCL application's lease table is missing, or its rows cannot be used.

    The message says which table and row, and how to repair them.
    """


@public
class LeaseLostError(SparkinesisError):
    """The lease belongs to another worker, or has expired, so no checkpoint can be made.

    Stop processing the shard: another worker continues from the last checkpoint. The KCL calls
    this ``ShutdownException``.
    """


@public
class UnfinishedResetError(SparkinesisError):
    """A reset moved some leases of the application, but not all of them.

    Run the same reset again to move the others. ``written`` and ``left`` hold the moves that were
    made and those that were not.
    """

    def __init__(self, message: str, written: Sequence[Any] = (), left: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.written = tuple(written)
        self.left = tuple(left)


@public
class DuplicateWorkerIdError(SparkinesisError):
    """Another live worker of the application uses the same worker id.

    Give each worker an id of its own, or none: a worker without one makes a unique id.
    """


@public
class CheckpointError(SparkinesisError, ValueError):
    """The position is beyond the delivered records, or before the last checkpoint.

    Nothing was written. Use ``checkpointer.reset`` to process records again.
    """


@public
class ProcessorError(SparkinesisError, TypeError):
    """The record processor cannot be used, or one of its methods returned unfinished work.

    Unfinished work is a coroutine or a generator, from a method that is ``async def`` or has a
    ``yield``. No record of the call is checkpointed or skipped, whatever ``on_error`` says: the
    worker ends and raises this error.
    """


@public
class SinkUnavailableError(SparkinesisError):
    """The storage of a sink cannot be reached or refuses files. The rows stay in memory.

    The checkpoint that follows the rows was not written. The same call may succeed later.
    """


@public
class SchemaMismatchError(SparkinesisError, ValueError):
    """The rows given to a sink do not fit the sink's schema. The sink took none of them."""


@public
class DeadLetterError(SparkinesisError):
    """Dead letters cannot be read, or some of them could not be put back into a stream.

    Records that were put back stay in the stream. Run the command again for the others.
    """


@public
class FleetError(SparkinesisError):
    """A fleet of workers did not start, or failed and does not restart. The message says why."""


@public
class LocalServerError(SparkinesisError):
    """The local server cannot start: its port is in use, or a package is not installed."""
