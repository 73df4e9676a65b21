"""The errors of sparkinesis: one small tree, each saying what happened, where, and what to do."""

from __future__ import annotations


class SparkinesisError(Exception):
    """The root of everything that sparkinesis raises on purpose."""


class OptionError(SparkinesisError, ValueError):
    """An option is unknown, missing, or has a value that cannot be used. Nothing was called."""


class StreamNotFoundError(SparkinesisError):
    """The stream does not exist in the region and account that were asked."""


class AccessDeniedError(SparkinesisError):
    """The credentials in use may not make the call. Never retried."""


class DataLossError(SparkinesisError):
    """Records between a stored position and the oldest record still kept are gone."""


class LeaseTableError(SparkinesisError):
    """A KCL application's lease table is missing, or does not tell where the application stands."""


class ServiceError(SparkinesisError):
    """A call to the service failed for good: every retry was used up, or none would help."""


class ConsumerNotFoundError(SparkinesisError):
    """The registered consumer (enhanced fan-out) does not exist, or is being deregistered."""


class ConsumerLimitError(SparkinesisError):
    """The stream has as many registered consumers (enhanced fan-out) as it may have."""


class CorruptEventStreamError(ServiceError):
    """What came over a subscription are no events; a new subscription may help."""


class ShardNotFoundError(DataLossError):
    """The shard does not exist any more, and with it what had not been read of it."""


class PositionNotFoundError(DataLossError):
    """The service refuses a sequence number: it is not one of this shard's, or not any more."""


class ExpiredIteratorError(SparkinesisError):
    """A shard iterator is older than five minutes; get a new one after the last record read."""


class RecordRefusedError(SparkinesisError, ValueError):
    """A row cannot be a record: too large, a bad key, or no data. Nothing of its batch was put."""


class RecordTooLargeError(SparkinesisError, ValueError):
    """A user record does not fit into an aggregated record of the requested maximum size."""


class LeaseLostError(SparkinesisError):
    """The lease is another worker's, or may be by now: nothing can be checkpointed under it.

    What the KCL calls ``ShutdownException``. Stop processing: another worker goes on.
    """


class LeaseTableUnavailableError(ServiceError):
    """DynamoDB throttles, or cannot be reached, and retries ran out. Trying again later may help.

    What the KCL calls ``ThrottlingException`` and ``KinesisClientLibDependencyException``.
    """


class CheckpointError(SparkinesisError, ValueError):
    """A checkpoint outside of what was delivered, or behind the last one. Nothing was written."""


class DuplicateWorkerIdError(SparkinesisError):
    """Another live worker of the application has the same worker id."""


class ProcessorError(SparkinesisError, TypeError):
    """What was given as a record processor is none, or a call of it returned before its work.

    The second is a coroutine or a generator instead of None. Nothing that the call was given is
    checkpointed or skipped, whatever ``on_error`` says: the worker ends, and raises this.
    """


class InconsistentShardsError(SparkinesisError):
    """ListShards' answer cannot be right, as during a reshard; asking again in a second may help.

    Nothing was written.
    """


class SinkUnavailableError(SparkinesisError):
    """A sink's storage refuses files, or cannot be reached. Its rows are kept in memory.

    The checkpoint that they had to precede was not written; trying again later may help.
    """


class DeadLetterError(SparkinesisError):
    """Dead letters cannot be read, or some could not be put back. What was put stays put."""


class SchemaMismatchError(SparkinesisError, ValueError):
    """Rows do not fit the schema of the sink they were given to. None of them was taken."""


class FleetError(SparkinesisError):
    """A fleet of workers could not be started, or has failed for good. It says why."""
