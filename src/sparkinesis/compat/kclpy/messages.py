"""The arguments of a processor's methods, with amazon_kclpy's attributes and constructors.

The constructors take a dictionary as in the daemon's protocol, because tests of processors make
their inputs that way. Unlike in amazon_kclpy, an arrival time is an aware datetime in UTC, or None
if it is unknown.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from sparkinesis.errors import (
    CheckpointError as RefusedCheckpointError,
)
from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
    SparkinesisError,
)
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.processors.processor import ProcessorShard

SHUTDOWN = "ShutdownException"
"""The lease is lost: stop processing."""
THROTTLING = "ThrottlingException"
"""DynamoDB does not respond: retry later."""
INVALID_STATE = "InvalidStateException"
"""The lease table does not exist, or is another kind of table."""
ILLEGAL_ARGUMENT = "IllegalArgumentException"
"""The position may not be checkpointed."""
DEPENDENCY = "KinesisClientLibDependencyException"
"""Any other failure of a call to DynamoDB."""

_NAMES: tuple[tuple[type[SparkinesisError], str], ...] = (
    (LeaseLostError, SHUTDOWN),
    (LeaseTableUnavailableError, THROTTLING),
    (LeaseTableError, INVALID_STATE),
    (RefusedCheckpointError, ILLEGAL_ARGUMENT),
)


class CheckpointError(Exception):
    """A checkpoint failed. Its ``__cause__`` is the error of sparkinesis, with the details.

    value: the simple class name of the Java KCL's exception.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        # amazon_kclpy shows the name in quotes; here the reason follows.
        reason = f": {self.__cause__}" if self.__cause__ is not None else ""
        return f"{self.value!r}{reason}"


def checkpoint_error(error: SparkinesisError) -> CheckpointError:
    """Return the exception that amazon_kclpy raises in place of ``error``."""
    for kind, name in _NAMES:
        if isinstance(error, kind):
            return CheckpointError(name)
    return CheckpointError(DEPENDENCY)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class AnyCheckpointer(Protocol):
    """The interface of all checkpointers."""

    def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Checkpoint up to this record; without arguments, up to the last delivered record."""


class LeaseLostCheckpointer:
    """A checkpointer that refuses every checkpoint with "ShutdownException"."""

    def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        del sequence_number, sub_sequence_number
        raise CheckpointError(SHUTDOWN)


class Record:
    """A user record, as a producer put it (after de-aggregation)."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._fields: Mapping[str, Any] | None = json_dict
        self._binary: bytes | None = None
        self.sequence_number: str = json_dict["sequenceNumber"]
        """The Kinesis record's sequence number, which all user records of an aggregate share."""
        self.sub_sequence_number: int = json_dict["subSequenceNumber"]
        """The index within an aggregated record, from 0; 0 for any other record."""
        self.partition_key: str | None = json_dict["partitionKey"]
        """The partition key; None for a record that was put without one, as in the daemon."""
        self.explicit_hash_key: str | None = json_dict.get("explicitHashKey")
        """The explicit hash key, which amazon_kclpy does not provide; None if not set."""
        self._data: str | None = json_dict["data"]
        arrival = json_dict.get("approximateArrivalTimestamp")
        self._arrival = None if arrival is None else _EPOCH + timedelta(milliseconds=int(arrival))
        self._of: UserRecord | None = None

    @classmethod
    def of(cls, record: UserRecord) -> Record:
        """Convert a user record of a batch."""
        made = cls.__new__(cls)
        made._fields = None
        made._binary = record.data
        made._data = None
        made.sequence_number = record.sequence_number
        made.sub_sequence_number = record.sub_sequence_number
        made.partition_key = record.partition_key
        made.explicit_hash_key = record.explicit_hash_key
        made._of = record
        return made

    @property
    def binary_data(self) -> bytes:
        """The data as the producer put it."""
        if self._binary is None:
            self._binary = base64.b64decode(self._data or "")
        return self._binary

    @property
    def data(self) -> str:
        """The data in base64, encoded on first access; `binary_data` costs nothing."""
        if self._data is None:
            self._data = base64.b64encode(self.binary_data).decode("ascii")
        return self._data

    @property
    def timestamp_millis(self) -> int | None:
        """The arrival time in epoch milliseconds; None if the service did not report it."""
        arrival = self.approximate_arrival_timestamp
        return None if arrival is None else (arrival - _EPOCH) // timedelta(milliseconds=1)

    @property
    def approximate_arrival_timestamp(self) -> datetime | None:
        """The arrival time, an aware datetime in UTC; amazon_kclpy's is naive local time."""
        return self._arrival if self._of is None else self._of.approximate_arrival_timestamp

    def get(self, field: str) -> Any:
        """Return a field by its name in the daemon's protocol. Raises KeyError."""
        if self._fields is None:
            self._fields = {
                "action": "record",
                "data": self.data,
                "partitionKey": self.partition_key,
                "sequenceNumber": self.sequence_number,
                "subSequenceNumber": self.sub_sequence_number,
                "approximateArrivalTimestamp": self.timestamp_millis,
            }
        return self._fields[field]

    def __getitem__(self, field: str) -> Any:
        return self.get(field)


class InitializeInput:
    """The shard and its checkpoint."""

    action = "initialize"

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self.shard_id: str = json_dict["shardId"]
        self.sequence_number: str | None = json_dict["sequenceNumber"]
        """The checkpoint; TRIM_HORIZON, LATEST or AT_TIMESTAMP for a shard without one."""
        self.sub_sequence_number: int = json_dict["subSequenceNumber"]

    @classmethod
    def of(cls, shard: ProcessorShard) -> InitializeInput:
        return cls(
            {
                "shardId": shard.id,
                "sequenceNumber": shard.checkpoint.sequence_number,
                "subSequenceNumber": shard.checkpoint.sub_sequence_number,
            }
        )


class _CheckpointerInput:
    def __init__(
        self,
        json_dict: Mapping[str, Any] | None = None,
        checkpointer: AnyCheckpointer | None = None,
    ) -> None:
        del json_dict
        self.checkpointer: AnyCheckpointer = checkpointer or LeaseLostCheckpointer()
        """The checkpointer. An input that was made without one refuses every checkpoint."""


class ProcessRecordsInput(_CheckpointerInput):
    """Records of one shard, in order."""

    action = "processRecords"

    def __init__(
        self, json_dict: Mapping[str, Any], checkpointer: AnyCheckpointer | None = None
    ) -> None:
        super().__init__(json_dict, checkpointer)
        self.records: Sequence[Record] = json_dict["records"]
        self.millis_behind_latest: int | None = json_dict["millisBehindLatest"]
        """The lag of the last record behind the tip; None if the service did not report it."""

    @classmethod
    def of(cls, batch: RecordBatch, checkpointer: AnyCheckpointer) -> ProcessRecordsInput:
        records = [Record.of(record) for record in batch.records]
        return cls(
            {"records": records, "millisBehindLatest": batch.millis_behind_latest}, checkpointer
        )


class LeaseLostInput:
    """The input of ``lease_lost``; it has no fields."""

    action = "leaseLost"

    def __init__(self, json_dict: Mapping[str, Any] | None = None) -> None:
        del json_dict


class ShardEndedInput(_CheckpointerInput):
    """The shard was split or merged, and all its records were delivered: checkpoint."""

    action = "shardEnded"


class ShutdownRequestedInput(_CheckpointerInput):
    """The worker shuts down, or another worker takes the shard: the last chance to checkpoint."""

    action = "shutdownRequested"


class ShutdownInput(_CheckpointerInput):
    """The last input of a processor of version 2 or 1, with one of two reasons."""

    action = "shutdown"

    def __init__(self, reason: str, checkpointer: AnyCheckpointer) -> None:
        super().__init__(checkpointer=checkpointer)
        self.reason = reason
        """ZOMBIE: do not checkpoint. TERMINATE: checkpoint, so that the child shards can begin."""

    @staticmethod
    def zombie() -> ShutdownInput:
        """Return the input for a lost lease."""
        return ShutdownInput("ZOMBIE", LeaseLostCheckpointer())

    @staticmethod
    def terminate(checkpointer: AnyCheckpointer) -> ShutdownInput:
        """Return the input for the end of a shard."""
        return ShutdownInput("TERMINATE", checkpointer)
