"""The operations of Kinesis by name; each is a function of a context and a typed request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from sparkinesis.local.encoding import requests
from sparkinesis.local.model.record_page import RecordPage
from sparkinesis.local.model.subscription import Subscription
from sparkinesis.local.operations import (
    account,
    consumers,
    get,
    policies,
    put,
    settings,
    shards,
    streams,
    subscribe,
    tags,
)
from sparkinesis.local.operations.context import Context, Json

Result = RecordPage | Json | Subscription | None


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: its request type and its function. trusting: see `Codec.decode`."""

    request: type[requests.Request]
    handle: Callable[[Context, Any], Result]
    trusting: bool = False


# Operations that are missing here, those on channels and queues, return UnknownOperationException:
# docs/local-server.md lists them.
OPERATIONS: Mapping[str, Operation] = {
    "AddTagsToStream": Operation(requests.AddTagsToStream, tags.add_tags),
    "CreateStream": Operation(requests.CreateStream, streams.create_stream),
    "DecreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, settings.decrease_retention
    ),
    "DeleteResourcePolicy": Operation(requests.ResourceRequest, policies.delete_policy),
    "DeleteStream": Operation(requests.DeleteStream, streams.delete_stream),
    "DeregisterStreamConsumer": Operation(requests.StreamConsumer, consumers.deregister_consumer),
    "DescribeAccountSettings": Operation(requests.AccountRequest, account.describe_settings),
    "DescribeLimits": Operation(requests.AccountRequest, account.describe_limits),
    "DescribeStream": Operation(requests.DescribeStream, streams.describe_stream),
    "DescribeStreamConsumer": Operation(requests.StreamConsumer, consumers.describe_consumer),
    "DescribeStreamSummary": Operation(
        requests.DescribeStreamSummary, streams.describe_stream_summary
    ),
    "DisableEnhancedMonitoring": Operation(
        requests.EnhancedMonitoring, settings.disable_monitoring
    ),
    "EnableEnhancedMonitoring": Operation(requests.EnhancedMonitoring, settings.enable_monitoring),
    "GetRecords": Operation(requests.GetRecords, get.get_records),
    "GetResourcePolicy": Operation(requests.ResourceRequest, policies.get_policy),
    "GetShardIterator": Operation(requests.GetShardIterator, get.get_shard_iterator),
    "IncreaseStreamRetentionPeriod": Operation(
        requests.RetentionPeriod, settings.increase_retention
    ),
    "ListShards": Operation(requests.ListShards, shards.list_shards),
    "ListStreamConsumers": Operation(requests.ListStreamConsumers, consumers.list_consumers),
    "ListStreams": Operation(requests.ListStreams, streams.list_streams),
    "ListTagsForResource": Operation(requests.ResourceRequest, tags.list_resource_tags),
    "ListTagsForStream": Operation(requests.ListTagsForStream, tags.list_tags),
    "MergeShards": Operation(requests.MergeShards, shards.merge_shards),
    "PutRecord": Operation(requests.PutRecord, put.put_record, trusting=True),
    "PutRecords": Operation(requests.PutRecords, put.put_records, trusting=True),
    "PutResourcePolicy": Operation(requests.PutResourcePolicy, policies.put_policy),
    "RegisterStreamConsumer": Operation(
        requests.RegisterStreamConsumer, consumers.register_consumer
    ),
    "RemoveTagsFromStream": Operation(requests.RemoveTagsFromStream, tags.remove_tags),
    "SplitShard": Operation(requests.SplitShard, shards.split_shard),
    "StartStreamEncryption": Operation(requests.StreamEncryption, settings.start_encryption),
    "StopStreamEncryption": Operation(requests.StreamEncryption, settings.stop_encryption),
    "SubscribeToShard": Operation(requests.SubscribeToShard, subscribe.subscribe_to_shard),
    "TagResource": Operation(requests.TagResource, tags.tag_resource),
    "UntagResource": Operation(requests.UntagResource, tags.untag_resource),
    "UpdateAccountSettings": Operation(requests.UpdateAccountSettings, account.update_settings),
    "UpdateMaxRecordSize": Operation(requests.UpdateMaxRecordSize, settings.update_max_record_size),
    "UpdateShardCount": Operation(requests.UpdateShardCount, shards.update_shard_count),
    "UpdateStreamMode": Operation(requests.UpdateStreamMode, settings.update_mode),
    "UpdateStreamRecordDistributionStrategy": Operation(
        requests.UpdateStreamRecordDistributionStrategy, settings.update_distribution
    ),
    "UpdateStreamWarmThroughput": Operation(
        requests.UpdateStreamWarmThroughput, settings.update_warm_throughput
    ),
}
