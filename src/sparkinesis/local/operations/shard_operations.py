"""The operations on shards: list, split, merge, UpdateShardCount."""

from __future__ import annotations

import math

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.model.limits import MAX_STREAM_SHARDS
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import ListShardsToken, seal
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, millis, resume, shard_json
from sparkinesis.local.service_errors import KinesisError


def list_shards(context: Context, request: requests.ListShards) -> Json:
    _check_filter(request.shard_filter)
    if request.next_token is not None:
        stream, token = _continue_list_shards(context, request, request.next_token)
    else:
        stream = context.find(request.stream_name, request.stream_arn)
        wanted = request.shard_filter
        token = ListShardsToken(
            context.now,
            context.region.name,
            stream.name,
            stream.created_ms,
            request.exclusive_start_shard_id or "",
            wanted.type if wanted else "FROM_TRIM_HORIZON",
            (wanted and wanted.shard_id) or "",
            millis(wanted.timestamp) if wanted and wanted.timestamp is not None else -1,
        )
    if not stream.is_serving:
        raise service_errors.not_active(stream.name, ACCOUNT, stream.status)
    if context.limits is not None and not stream.use.list_shards.take(
        context.now, 1, context.limits.stream_list_shards
    ):
        raise service_errors.limit_exceeded(
            f"Rate exceeded for stream {stream.name} under account {ACCOUNT}."
        )
    shards = [
        shard for shard in _filtered(stream, token, context.now) if shard.id > token.after_shard
    ]
    page = shards[: request.max_results or 1000]
    answer: Json = {"Shards": [shard_json(shard) for shard in page]}
    if len(shards) > len(page):
        following = msgspec.structs.replace(token, issued_ms=context.now, after_shard=page[-1].id)
        answer["NextToken"] = seal(following)
    return answer


def _continue_list_shards(
    context: Context, request: requests.ListShards, next_token: str
) -> tuple[Stream, ListShardsToken]:
    """Return the stream and token of a NextToken, which replaces all other parameters."""
    others = {
        "StreamName": request.stream_name,
        "StreamARN": request.stream_arn,
        "ExclusiveStartShardId": request.exclusive_start_shard_id,
        "StreamCreationTimestamp": request.stream_creation_timestamp,
        "ShardFilter": request.shard_filter,
    }
    for name, value in others.items():
        if value is not None:
            raise service_errors.invalid_argument(
                f"NextToken and {name} cannot be provided together."
            )
    token = resume(next_token, ListShardsToken, context.now)
    if token.region != context.region.name:
        raise service_errors.invalid_argument("Invalid NextToken.")
    stream = context.find(token.stream, None)
    if stream.created_ms != token.stream_created:
        raise service_errors.stream_not_found(token.stream, ACCOUNT)
    return stream, token


def _check_filter(wanted: requests.ShardFilter | None) -> None:
    if wanted is None:
        return
    if (wanted.type == "AFTER_SHARD_ID") != (wanted.shard_id is not None):
        raise service_errors.invalid_argument(
            f"ShardFilter of type {wanted.type}: ShardId is required for AFTER_SHARD_ID, and "
            "refused else."
        )
    if (wanted.type in {"AT_TIMESTAMP", "FROM_TIMESTAMP"}) != (wanted.timestamp is not None):
        raise service_errors.invalid_argument(
            f"ShardFilter of type {wanted.type}: Timestamp is required for AT_TIMESTAMP and "
            "FROM_TIMESTAMP, and refused else."
        )


def _filtered(stream: Stream, token: ListShardsToken, now: int) -> list[Shard]:
    """Apply a ShardFilter; timestamps before TRIM_HORIZON are moved up to it."""
    kind = token.filter_type
    horizon = stream.trim_horizon_ms(now)
    if kind == "AFTER_SHARD_ID":
        return [shard for shard in stream.shards if shard.id > token.filter_shard]
    if kind == "AT_TRIM_HORIZON":
        return stream.key_space.existing(created_by=horizon, closed_from=horizon + 1)
    if kind == "AT_LATEST":
        return [shard for shard in stream.shards if shard.is_open]
    instant = max(token.filter_ms, horizon)
    if kind == "AT_TIMESTAMP":
        # As documented, inclusive: at a reshard both generations are returned.
        return stream.key_space.existing(created_by=instant, closed_from=instant)
    if kind == "FROM_TIMESTAMP":
        return stream.key_space.existing(created_by=math.inf, closed_from=instant)
    return stream.shards


def split_shard(context: Context, request: requests.SplitShard) -> None:
    stream = _provisioned(context, request)
    shard = _reshardable(stream, request.shard_to_split)
    start = int(request.new_starting_hash_key)
    if not shard.hash_start + 1 < start < shard.hash_end:
        raise service_errors.invalid_argument(
            f"NewStartingHashKey {start} used in SplitShard() on shard {shard.id} in stream "
            f"{stream.name} under account {ACCOUNT} is not both greater than one plus the "
            f"shard's StartingHashKey {shard.hash_start} and less than the shard's "
            f"EndingHashKey {shard.hash_end}."
        )
    account.check_shards(context, 1)
    stream.change(
        lambda now: stream.key_space.split(shard, start, now),
        context.now,
        context.delays.reshard_ms,
    )


def merge_shards(context: Context, request: requests.MergeShards) -> None:
    stream = _provisioned(context, request)
    first = _reshardable(stream, request.shard_to_merge)
    second = _reshardable(stream, request.adjacent_shard_to_merge)
    left, right = sorted((first, second), key=lambda shard: shard.hash_start)
    if left.hash_end + 1 != right.hash_start:
        raise service_errors.invalid_argument(
            f"Shards {first.id} and {second.id} in stream {stream.name} under account "
            f"{ACCOUNT} are not an adjacent pair of shards eligible for merging"
        )
    stream.change(
        lambda now: stream.key_space.merge(left, right, now, named_first=first),
        context.now,
        context.delays.reshard_ms,
    )


def update_shard_count(context: Context, request: requests.UpdateShardCount) -> Json:
    stream = _provisioned(context, request)
    current, target = len(stream.open_shards), request.target_shard_count
    if context.limits is not None:
        _check_target(context.limits.shards_in(context.region.name), current, target)
        account.check_shards(context, target - current)
    stream.change(
        lambda now: stream.key_space.rescale(target, now), context.now, context.delays.reshard_ms
    )
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": current,
        "TargetShardCount": target,
    }


def _check_target(account_limit: int, current: int, target: int) -> None:
    counts = f"Current open shard count: {current}, Target shard count: {target}"
    most = min(account_limit, MAX_STREAM_SHARDS)
    if target > most:
        raise service_errors.limit_exceeded(
            f"Target shard count or number of open shards cannot be greater than {most}. {counts}"
        )
    if target > 2 * current:
        raise service_errors.limit_exceeded(
            f"UpdateShardCount cannot scale up over double your current open shard count. {counts}"
        )
    if target * 2 < current:
        raise service_errors.limit_exceeded(
            f"UpdateShardCount cannot scale down below half your current open shard count. {counts}"
        )


def _provisioned(context: Context, request: requests.StreamRequest) -> Stream:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    if stream.settings.is_on_demand:
        raise KinesisError(
            "ValidationException",
            f"Request is invalid. Stream {stream.name} under account {ACCOUNT} is in "
            "On-Demand mode.",
        )
    return stream


def _reshardable(stream: Stream, shard_id: str) -> Shard:
    shard = stream.key_space.get(shard_id)
    if shard is None:
        raise service_errors.shard_not_found(shard_id, stream.name, ACCOUNT)
    if not shard.is_open:
        raise service_errors.invalid_argument(
            f"Shard {shard_id} in stream {stream.name} under account {ACCOUNT} has already "
            "been merged or split, and thus is not eligible for merging or splitting."
        )
    return shard
