"""The operations of Kinesis by name; each is a function of a context and a typed request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from sparkinesis.local.encoding import requests
from sparkinesis.local.model.record_page import RecordPage
from sparkinesis.local.model.subscription import Subscription
from sparkinesis.local.operations import consumers, get, put, shards, streams, subscribe
from sparkinesis.local.operations.context import Context, Json

Result = RecordPage | Json | Subscription | None


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: its request type and its function. trusting: see `Codec.decode`."""

    request: type[requests.Request]
    handle: Callable[[Context, Any], Result]
    trusting: bool = False


# Operations that are missing here, such as encryption, return UnknownOperationException.
OPERATIONS: Mapping[str, Operation] = {
    "AddTagsToStream": Operation(requests.AddTagsToStream, streams.add_tags),
    "CreateStream": Operation(requests.CreateStream, streams.create_stream),
    "DecreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, streams.decrease_retention
    ),
    "DeleteStream": Operation(requests.DeleteStream, streams.delete_stream),
    "DeregisterStreamConsumer": Operation(requests.StreamConsumer, consumers.deregister_consumer),
    "DescribeStream": Operation(requests.DescribeStream, streams.describe_stream),
    "DescribeStreamConsumer": Operation(requests.StreamConsumer, consumers.describe_consumer),
    "DescribeStreamSummary": Operation(
        requests.DescribeStreamSummary, streams.describe_stream_summary
    ),
    "GetRecords": Operation(requests.GetRecords, get.get_records),
    "GetShardIterator": Operation(requests.GetShardIterator, get.get_shard_iterator),
    "IncreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, streams.increase_retention
    ),
    "ListShards": Operation(requests.ListShards, shards.list_shards),
    "ListStreamConsumers": Operation(requests.ListStreamConsumers, consumers.list_consumers),
    "ListStreams": Operation(requests.ListStreams, streams.list_streams),
    "ListTagsForStream": Operation(requests.ListTagsForStream, streams.list_tags),
    "MergeShards": Operation(requests.MergeShards, shards.merge_shards),
    "PutRecord": Operation(requests.PutRecord, put.put_record, trusting=True),
    "PutRecords": Operation(requests.PutRecords, put.put_records, trusting=True),
    "RegisterStreamConsumer": Operation(
        requests.RegisterStreamConsumer, consumers.register_consumer
    ),
    "RemoveTagsFromStream": Operation(requests.RemoveTagsFromStream, streams.remove_tags),
    "SplitShard": Operation(requests.SplitShard, shards.split_shard),
    "SubscribeToShard": Operation(requests.SubscribeToShard, subscribe.subscribe_to_shard),
    "UpdateShardCount": Operation(requests.UpdateShardCount, shards.update_shard_count),
    "UpdateStreamRecordDistributionStrategy": Operation(
        requests.UpdateStreamRecordDistributionStrategy, streams.update_distribution
    ),
}
