"""The operation SubscribeToShard (enhanced fan-out)."""

from __future__ import annotations

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.errors import KinesisError
from sparkinesis.local.model.subscription import Subscription
from sparkinesis.local.operations.consumers import find_consumer
from sparkinesis.local.operations.context import ACCOUNT, Context
from sparkinesis.local.operations.start import check_start, start_position


def subscribe_to_shard(context: Context, request: requests.SubscribeToShard) -> Subscription:
    start = request.starting_position
    check_start(context, start)
    stream, consumer = find_consumer(context, request.consumer_arn)
    status = consumer.status(context.now)
    if status != "ACTIVE":
        raise KinesisError(
            "ResourceInUseException",
            f"Consumer {consumer.name}, stream {stream.name} under account {ACCOUNT} not ACTIVE, "
            f"instead in state {status}",
        )
    shard = stream.shard(request.shard_id)
    if shard is None:
        raise errors.shard_does_not_exist(request.shard_id, stream.name, ACCOUNT)
    stream.trim(shard, context.now)
    position = start_position(context, start, stream, shard)
    if not consumer.may_subscribe(shard.id, context.now, context.limits):
        raise KinesisError(
            "ResourceInUseException",
            f"Another active subscription exists for this consumer: {ACCOUNT}:{stream.name}:"
            f"{consumer.name}:{shard.id}",
        )
    context.end_dry_run(request.dry_run, stream)
    subscription = Subscription(
        context.region.name,
        stream,
        shard,
        position,
        on_close=consumer.forget,
        now=context.now,
        fault=context.fault,
    )
    consumer.take_over(subscription, context.now)
    return subscription
