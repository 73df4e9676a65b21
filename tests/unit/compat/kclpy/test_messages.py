"""The inputs of processors: amazon_kclpy's attributes, with its weak spots fixed."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from sparkinesis.compat.kclpy.messages import (
    CheckpointError,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
    checkpoint_error,
)
from sparkinesis.errors import (
    AccessDeniedError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.page import Record as StreamRecord
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.processors.processor import ProcessorShard

ARRIVAL = datetime(2027, 1, 15, 8, 0, 0, 123_000, tzinfo=timezone.utc)
PROTOCOL = {
    "action": "record",
    "data": "AP8=",
    "partitionKey": "key",
    "sequenceNumber": "123",
    "subSequenceNumber": 4,
    "approximateArrivalTimestamp": 1_800_000_000_123,
}


def user_record(arrival: datetime | None = ARRIVAL) -> UserRecord:
    return UserRecord(b"\x00\xff", "key", "123", 4, arrival, "99", "shard")


@pytest.mark.parametrize("record", [Record(PROTOCOL), Record.of(user_record())])
def test_a_record_has_the_attributes_and_the_fields_of_the_protocol(record: Record) -> None:
    assert (record.binary_data, record.data) == (b"\x00\xff", "AP8=")
    assert (record.sequence_number, record.sub_sequence_number) == ("123", 4)
    assert record.partition_key == "key"
    assert record.timestamp_millis == 1_800_000_000_123
    assert record.approximate_arrival_timestamp == ARRIVAL
    for field, value in PROTOCOL.items():
        assert record.get(field) == record[field] == value
    with pytest.raises(KeyError):
        record.get("explicitHashKeys")


def test_a_record_without_an_arrival_time() -> None:
    for record in (
        Record(PROTOCOL | {"approximateArrivalTimestamp": None}),
        Record.of(user_record(None)),
    ):
        assert record.approximate_arrival_timestamp is None
        assert record.timestamp_millis is None
        assert record["approximateArrivalTimestamp"] is None


def test_the_explicit_hash_key_is_told_too() -> None:
    assert Record.of(user_record()).explicit_hash_key == "99"
    assert Record(PROTOCOL).explicit_hash_key is None


def test_initialize_tells_the_shard_and_where_it_stands() -> None:
    shard = ProcessorShard("shard", "app", "stream", "worker", ExtendedSequenceNumber("12", 3))
    given = InitializeInput.of(shard)
    assert (given.shard_id, given.sequence_number, given.sub_sequence_number) == ("shard", "12", 3)


def test_a_batch_becomes_records_in_order() -> None:
    records = [
        StreamRecord(
            data=b"%d" % n,
            partition_key="key",
            sequence_number=str(n),
            approximate_arrival_timestamp=ARRIVAL.timestamp() if n else None,
        )
        for n in range(3)
    ]
    batch, _ = make_batch(records, stream="s", shard_id="shard", millis_behind_latest=7)
    given = ProcessRecordsInput.of(batch, ShutdownInput.zombie().checkpointer)
    assert [record.binary_data for record in given.records] == [b"0", b"1", b"2"]
    assert given.records[0].approximate_arrival_timestamp is None
    assert given.records[1].approximate_arrival_timestamp == ARRIVAL
    assert given.millis_behind_latest == 7


@pytest.mark.parametrize(
    ("message", "action"),
    [
        (InitializeInput, "initialize"),
        (ProcessRecordsInput, "processRecords"),
        (LeaseLostInput, "leaseLost"),
        (ShardEndedInput, "shardEnded"),
        (ShutdownRequestedInput, "shutdownRequested"),
        (ShutdownInput, "shutdown"),
    ],
)
def test_the_actions_are_named_as_in_the_protocol(message: Any, action: str) -> None:
    assert message.action == action


def test_a_lost_lease_refuses_checkpoints() -> None:
    given = ShutdownInput.zombie()
    assert given.reason == "ZOMBIE"
    with pytest.raises(CheckpointError) as raised:
        given.checkpointer.checkpoint("1", 2)
    assert raised.value.value == "ShutdownException"


def test_errors_have_the_names_of_the_kcl() -> None:
    assert checkpoint_error(LeaseLostError("x")).value == "ShutdownException"
    assert checkpoint_error(LeaseTableUnavailableError("x")).value == "ThrottlingException"
    assert checkpoint_error(LeaseTableError("x")).value == "InvalidStateException"
    other = checkpoint_error(AccessDeniedError("x"))
    assert other.value == "KinesisClientLibDependencyException"
    assert str(CheckpointError("InvalidStateException")) == "'InvalidStateException'"
