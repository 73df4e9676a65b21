"""The errors of sparkinesis. Each message says what happened, where, and what to do.

Each class has a section with its causes and commands, by its name in lower case behind a #, in
https://sparkinesis.github.io/sparkinesis/errors.html (docs/errors.md of the repository).

::

    SparkinesisError
    ├── OptionError                     (ValueError)
    ├── ServiceError
    │   ├── LeaseTableUnavailableError
    │   └── CorruptEventStreamError
    ├── AccessDeniedError
    ├── StreamNotFoundError
    ├── QueueNotFoundError
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
    ├── RecordDecodeError               (ValueError)
    ├── LeaseTableError
    │   └── LeaseTableNotFoundError
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

``sparkinesis`` itself has those that a first program catches: SparkinesisError, OptionError,
ServiceError, DataLossError, LeaseLostError, CheckpointError, ProcessorError and FleetError.

A docstring that says "raises service errors" means the errors of calls to AWS: `ServiceError` with
its subclasses, `AccessDeniedError`, `StreamNotFoundError` and `LeaseTableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias
from unicodedata import category

Check: TypeAlias = tuple[Sequence[str], Callable[[], object]]
"""The names of options, and what raises an error if the first of them is wrong."""


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return names as text for a message: of many, the first ones and the number of the others."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with escapes in place of what is not printable.

    A name of the service, a row or a record may hold any text. Shown as it is, it could begin a
    line of its own, move a terminal's cursor, or turn the direction of what follows. lines: the
    ends of lines stay.
    """
    if text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable() or (lines and one == "\n") or category(one) == "Zs"
        else one.encode("unicode_escape").decode()
        for one in text
    )


def check_all(checks: Iterable[Check]) -> None:
    """Make all checks of options, and raise one error that tells all that is wrong.

    A check has the name of its option, and those of others that it rests on. It is left out if one
    of them is wrong already. Raises `ProcessorError` if that is all there is, else `OptionError`.
    """
    wrong: set[str] = set()
    errors: list[OptionError | ProcessorError] = []
    for names, check in checks:
        if wrong.isdisjoint(names):
            try:
                check()
            except (OptionError, ProcessorError) as error:
                errors.append(error)
                wrong.update(names[:1])
    texts = dict.fromkeys(map(str, errors))
    if len(texts) > 1:
        lines = "".join(f"\n- {text}" for text in texts)
        raise OptionError(f"The options have {len(texts)} errors:{lines}")
    if errors:
        raise errors[0]


class SparkinesisError(Exception):
    """The base class of every error that sparkinesis raises on purpose."""


# --- Options


class OptionError(SparkinesisError, ValueError):
    """An option is unknown, is missing, or has an unusable value. Nothing was written.

    The message names the option and its allowed values, or the nearest option that exists.
    """


# --- Calls to AWS


class ServiceError(SparkinesisError):
    """A call to AWS failed: no retry can help, or all retries failed.

    Also raised if the answers cannot be used: they are not valid, or a closed shard never ends, or
    its children are never listed. The message quotes the service, if it gave a reason. Run the
    query or the worker again once the service answers.
    """


class LeaseTableUnavailableError(ServiceError):
    """DynamoDB throttles calls or cannot be reached, and every retry failed.

    The same call may succeed later. This error is not a `LeaseTableError`. The KCL calls it
    ``ThrottlingException`` and ``KinesisClientLibDependencyException``.
    """


class CorruptEventStreamError(ServiceError):
    """The bytes received over a subscription are not valid event-stream messages.

    Workers and queries subscribe again by themselves.
    """


class AccessDeniedError(SparkinesisError):
    """The credentials do not permit a call, or are refused themselves. The call is not retried.

    The message begins with the cause: a permission is missing, and which; or the credentials are
    missing, have expired or are not valid; or the machine's clock is wrong.
    """


class StreamNotFoundError(SparkinesisError):
    """The stream does not exist in this region and account.

    Check the stream's name, the region and the endpoint.
    """


class QueueNotFoundError(SparkinesisError):
    """The queue does not exist in this region and account, or is being deleted.

    Check the queue's name or ARN, the region and the endpoint. A queue that was deleted and made
    anew has another ARN.
    """


# --- Streams, positions and records


class DataLossError(SparkinesisError):
    """Records may have been lost: they expired, or their stream was deleted, before they were read.

    The message names the shard and the position, and the option that lets the query continue from
    the oldest record kept. A worker logs the loss and continues.
    """

    @property
    def loss(self) -> str:
        """The message without the advice, which is for a query that ends."""
        return str(self).partition(" Set the option failOnDataLoss")[0]


class ShardNotFoundError(DataLossError):
    """The shard no longer exists, so its unread records are lost."""


class PositionNotFoundError(DataLossError):
    """Kinesis refuses a sequence number: the shard never had the record, or no longer keeps it."""


class OffsetError(SparkinesisError, ValueError):
    """The offset in Spark's checkpoint was not written by this source, or by another query.

    Use the checkpoint location that belongs to the query, or a new one.
    """


class ExpiredIteratorError(SparkinesisError):
    """A shard iterator is older than five minutes.

    A user meets this error only if a single call takes that long: queries and workers replace
    expired iterators by themselves.
    """


class InconsistentShardsError(SparkinesisError):
    """The shards that ListShards returned do not fit together, as may happen during a reshard.

    Nothing was written. Try again in a second.
    """


class ConsumerNotFoundError(SparkinesisError):
    """The registered consumer (enhanced fan-out) does not exist, or is being deregistered.

    Check the consumer's ARN, or give a name and let the worker register the consumer.
    """


class ConsumerLimitError(SparkinesisError):
    """The stream has the maximum number of registered consumers (enhanced fan-out) and queues.

    Deregister a consumer or delete a queue that is no longer needed, or read by polling.
    """


class RecordRefusedError(SparkinesisError, ValueError):
    """When writing a DataFrame: a row is too large, or its key or data is invalid or missing.

    No record of the row's Arrow batch was put.
    """


class RecordTooLargeError(SparkinesisError, ValueError):
    """From `aggregate()`: a user record does not fit into an aggregated record of ``max_size``.

    Raise ``max_size``, or put the record without aggregation.
    """


# --- Leases and workers


class RecordDecodeError(SparkinesisError, ValueError):
    """The data of a record is not as its decoder expects. The cause is the decoder's error.

    position: the record's sequence number, with its sub-sequence number.
    """

    def __init__(self, message: str, position: str = "") -> None:
        super().__init__(message)
        self.position = position


class LeaseTableError(SparkinesisError):
    """A KCL application's lease table is missing, or its rows cannot be used.

    The message says which table and row, and how to repair them. A table that does not answer is a
    `LeaseTableUnavailableError`, which is not a `LeaseTableError`.
    """


class LeaseTableNotFoundError(LeaseTableError):
    """The lease table does not exist in this region and account.

    Check its name, the region and the endpoint. A worker creates the table when it starts, but not
    if the table was deleted while the worker's process used it: restore the table from a backup.
    """


class LeaseLostError(SparkinesisError):
    """The lease belongs to another worker, has expired or was released: no checkpoint can be made.

    Stop processing the shard: the lease's next owner continues from the last checkpoint. The KCL
    calls this ``ShutdownException``.
    """


class UnfinishedResetError(SparkinesisError):
    """A reset moved some leases of the application, but not all of them.

    Run the same reset again to move the others. ``written`` has the resets that were made, and
    ``left`` those of the shards that are still to be reset. Each has the attribute ``key``, the key
    of its lease.
    """

    def __init__(self, message: str, written: Sequence[Any] = (), left: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.written: tuple[Any, ...] = tuple(written)
        self.left: tuple[Any, ...] = tuple(left)


class DuplicateWorkerIdError(SparkinesisError):
    """Another live worker of the application uses the same worker id.

    Give each worker an id of its own, or none: a worker without one makes a unique id.
    """


class CheckpointError(SparkinesisError, ValueError):
    """The position cannot be checkpointed. Nothing was written.

    The position is beyond the delivered records or before the last checkpoint, or is not a position
    of a record. To process records again, use ``checkpointer.reset``. ``reset`` raises this error
    for an invalid position, and in ``shard_ended``; ``prepare`` for a state that is no bytes, or
    too large; ``commit_pending`` if no checkpoint is prepared.
    """


class ProcessorError(SparkinesisError, TypeError):
    """The record processor cannot be used.

    It has no usable methods, one of its methods returned a coroutine or a generator instead of
    finishing, or its coroutines use an object of another event loop. No record of that call is
    checkpointed or skipped, whatever ``on_error`` says: the worker ends and raises this error.
    """


class SinkUnavailableError(SparkinesisError):
    """The storage of a sink, or of dead letters, cannot be reached or refuses files.

    The checkpoint that covers a sink's rows was not written. The rows stay in memory, and the same
    call may succeed later. If ``process_records`` raises this error, the rows that the call wrote
    are dropped, and its records are delivered again.
    """


class SchemaMismatchError(SparkinesisError, ValueError):
    """The rows given to a sink do not fit the sink's schema. The sink took none of them."""


class DeadLetterError(SparkinesisError):
    """Dead letters cannot be read, or some could not be put back, restored or discarded.

    Those that were put back stay in the stream. Run the command again for the others.
    """


class FleetError(SparkinesisError):
    """A fleet of workers did not start, or failed and does not restart. The message says why."""


class LocalServerError(SparkinesisError):
    """The local server cannot start: its port is in use, or a package is not installed."""
