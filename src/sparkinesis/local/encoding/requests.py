"""Typed requests. Field names are the service's in snake case; times are in seconds.

Constraints (lengths, ranges, patterns, enumerations) are not repeated here: `validation` reads them
from botocore's service model.
"""

from __future__ import annotations

from typing import Any

import msgspec

_SPECIAL = {
    "stream_arn": "StreamARN",
    "consumer_arn": "ConsumerARN",
    "resource_arn": "ResourceARN",
    "queue_arn": "QueueARN",
    "max_record_size_in_kib": "MaxRecordSizeInKiB",
    "warm_throughput_mibps": "WarmThroughputMiBps",
}


def _wire_name(field: str) -> str:
    return _SPECIAL.get(field) or "".join(part.capitalize() for part in field.split("_"))


class Request(msgspec.Struct, frozen=True, rename=_wire_name):
    pass


class StreamRequest(Request, frozen=True, kw_only=True):
    """A request for one stream, given by name, by ARN, or by both if they agree."""

    stream_name: str | None = None
    stream_arn: str | None = None


class StreamModeDetails(Request, frozen=True):
    stream_mode: str


class CreateStream(Request, frozen=True):
    stream_name: str
    shard_count: int | None = None
    stream_mode_details: StreamModeDetails | None = None
    tags: dict[str, str] | None = None
    warm_throughput_mibps: int | None = None
    max_record_size_in_kib: int | None = None
    record_distribution_strategy: str | None = None


ON_DEMAND_SIZE = "on-demand"
"""In place of a number of shards: the stream may have queues."""


def capacity(shards: int | str) -> dict[str, Any]:
    """Return the part of CreateStream that says how large a stream is."""
    if shards == ON_DEMAND_SIZE:
        return {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
    return {"ShardCount": shards}


class DeleteStream(StreamRequest, frozen=True, kw_only=True):
    enforce_consumer_deletion: bool | None = None


class DescribeStream(StreamRequest, frozen=True, kw_only=True):
    limit: int | None = None
    exclusive_start_shard_id: str | None = None


class DescribeStreamSummary(StreamRequest, frozen=True):
    pass


class ListStreams(Request, frozen=True):
    limit: int | None = None
    exclusive_start_stream_name: str | None = None
    next_token: str | None = None


class ShardFilter(Request, frozen=True):
    type: str
    shard_id: str | None = None
    timestamp: float | None = None


class ListShards(StreamRequest, frozen=True, kw_only=True):
    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: int | None = None
    stream_creation_timestamp: float | None = None
    shard_filter: ShardFilter | None = None


class PutRecord(StreamRequest, frozen=True, kw_only=True):
    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    sequence_number_for_ordering: str | None = None
    dry_run: bool | None = None


class PutRecordsEntry(Request, frozen=True):
    data: bytes
    partition_key: str | None = None
    explicit_hash_key: str | None = None


class PutRecords(StreamRequest, frozen=True, kw_only=True):
    records: list[PutRecordsEntry]
    dry_run: bool | None = None


class GetShardIterator(StreamRequest, frozen=True, kw_only=True):
    shard_id: str
    shard_iterator_type: str
    starting_sequence_number: str | None = None
    timestamp: float | None = None
    dry_run: bool | None = None


class GetRecords(Request, frozen=True):
    shard_iterator: str
    limit: int | None = None
    stream_arn: str | None = None
    dry_run: bool | None = None


class SplitShard(StreamRequest, frozen=True, kw_only=True):
    shard_to_split: str
    new_starting_hash_key: str


class MergeShards(StreamRequest, frozen=True, kw_only=True):
    shard_to_merge: str
    adjacent_shard_to_merge: str


class UpdateShardCount(StreamRequest, frozen=True, kw_only=True):
    target_shard_count: int
    scaling_type: str


class UpdateStreamMode(Request, frozen=True):
    stream_arn: str
    stream_mode_details: StreamModeDetails
    warm_throughput_mibps: int | None = None


class UpdateStreamWarmThroughput(StreamRequest, frozen=True, kw_only=True):
    warm_throughput_mibps: int


class UpdateMaxRecordSize(StreamRequest, frozen=True, kw_only=True):
    max_record_size_in_kib: int


class StreamEncryption(StreamRequest, frozen=True, kw_only=True):
    encryption_type: str
    key_id: str


class EnhancedMonitoring(StreamRequest, frozen=True, kw_only=True):
    shard_level_metrics: list[str]


class UpdateStreamRecordDistributionStrategy(Request, frozen=True):
    stream_arn: str
    record_distribution_strategy: str


class RetentionPeriod(StreamRequest, frozen=True, kw_only=True):
    retention_period_hours: int


class RegisterStreamConsumer(Request, frozen=True):
    stream_arn: str
    consumer_name: str
    tags: dict[str, str] | None = None


class StreamConsumer(Request, frozen=True):
    """A request for one consumer, given by its ARN, or by its name and the stream's ARN."""

    stream_arn: str | None = None
    consumer_name: str | None = None
    consumer_arn: str | None = None


class StartingPosition(Request, frozen=True):
    type: str
    sequence_number: str | None = None
    timestamp: float | None = None


class SubscribeToShard(Request, frozen=True, kw_only=True):
    consumer_arn: str
    shard_id: str
    starting_position: StartingPosition
    dry_run: bool | None = None


class ListStreamConsumers(Request, frozen=True):
    stream_arn: str
    next_token: str | None = None
    max_results: int | None = None


class QueueStartingPosition(Request, frozen=True):
    type: str
    timestamp: float | None = None


class QueueStreamConfiguration(Request, frozen=True):
    stream_arn: str
    starting_position: QueueStartingPosition | None = None


class DeadLetterSettings(Request, frozen=True):
    target_type: str
    max_receive_count: int | None = None


class QueueAttributes(Request, frozen=True):
    visibility_timeout_seconds: int | None = None
    dead_letter_configuration: DeadLetterSettings | None = None


class CreateQueue(Request, frozen=True):
    queue_name: str
    stream_configuration_list: list[QueueStreamConfiguration]
    queue_attributes: QueueAttributes | None = None
    tags: dict[str, str] | None = None


class QueueRequest(Request, frozen=True, kw_only=True):
    """A request for a queue."""

    queue_arn: str


class UpdateQueue(QueueRequest, frozen=True, kw_only=True):
    queue_attributes: QueueAttributes


class QueueStreamFilter(Request, frozen=True):
    stream_arn: str
    stream_creation_timestamp: float | None = None


class ListQueues(Request, frozen=True):
    max_results: int | None = None
    next_token: str | None = None
    stream_filter: list[QueueStreamFilter] | None = None


class ReceiveRecords(QueueRequest, frozen=True, kw_only=True):
    """A receive, of records or of dead letters."""

    limit: int = 10
    wait_time_seconds: int = 9
    visibility_timeout_seconds: int | None = None


class Receipt(Request, frozen=True):
    """One entry of `Receipts`. visibility_timeout_seconds: if this is what the call changes."""

    receipt_handle: str
    visibility_timeout_seconds: int = 0


class Receipts(QueueRequest, frozen=True, kw_only=True):
    """A request for records, or dead letters, that were received."""

    entries: list[Receipt]


class AddTagsToStream(StreamRequest, frozen=True, kw_only=True):
    tags: dict[str, str]


class RemoveTagsFromStream(StreamRequest, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListTagsForStream(StreamRequest, frozen=True, kw_only=True):
    exclusive_start_tag_key: str | None = None
    limit: int | None = None


class ResourceRequest(Request, frozen=True, kw_only=True):
    """A request for a stream, a consumer or a queue."""

    resource_arn: str


class TagResource(ResourceRequest, frozen=True, kw_only=True):
    tags: dict[str, str]


class UntagResource(ResourceRequest, frozen=True, kw_only=True):
    tag_keys: list[str]


class PutResourcePolicy(ResourceRequest, frozen=True, kw_only=True):
    policy: str


class AccountRequest(Request, frozen=True):
    """A request without parameters."""


class MinimumThroughputBillingCommitment(Request, frozen=True):
    status: str


class UpdateAccountSettings(Request, frozen=True):
    minimum_throughput_billing_commitment: MinimumThroughputBillingCommitment
