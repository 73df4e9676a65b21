"""The operations on the account, and the limits that hold for all of its streams in a region."""

from __future__ import annotations

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.model import limits
from sparkinesis.local.model.queue import Queue
from sparkinesis.local.model.stream import ON_DEMAND, Stream
from sparkinesis.local.operations.context import ACCOUNT, Commitment, Context, Json
from sparkinesis.local.service_errors import KinesisError

# The largest numbers that the service model allows; shown by a server without limits.
_NO_LIMIT = 1_000_000


def describe_limits(context: Context, request: requests.AccountRequest) -> Json:  # noqa: ARG001
    quota = context.limits
    return {
        "ShardLimit": quota.shards_in(context.region.name) if quota else _NO_LIMIT,
        "OpenShardCount": _open_shards(context),
        "ChannelCount": 0,
        "OnDemandStreamCount": _on_demand_streams(context),
        "OnDemandStreamCountLimit": quota.account_on_demand_streams if quota else _NO_LIMIT,
    }


def describe_account_settings(context: Context, request: requests.AccountRequest) -> Json:  # noqa: ARG001
    return _settings_json(context.region.commitment, context.now)


def update_account_settings(context: Context, request: requests.UpdateAccountSettings) -> Json:
    commitment = context.region.commitment
    if request.minimum_throughput_billing_commitment.status == "ENABLED":
        commitment.enable(context.now)
    else:
        commitment.disable(context.now)
    return _settings_json(commitment, context.now)


def _settings_json(commitment: Commitment, now: int) -> Json:
    answer: Json = {"Status": commitment.status(now)}
    times = {
        "StartedAt": commitment.started_ms,
        "EarliestAllowedEndAt": commitment.earliest_end_ms,
        "EndedAt": None if commitment.holds(now) else commitment.ended_ms,
    }
    answer.update((name, ms / 1000) for name, ms in times.items() if ms is not None)
    return {"MinimumThroughputBillingCommitment": answer}


# Limits


def check_new_stream(context: Context, mode: str, shards: int) -> None:
    """Raise KinesisError if the account may not create one more stream."""
    if context.limits is None:
        return
    most = context.limits.creating_streams
    states = [stream.status for stream in context.region.all_streams(context.now)]
    if states.count("CREATING") >= most:
        raise service_errors.limit_exceeded(
            f"Account {ACCOUNT} has {most} streams in state CREATING, which is the limit."
        )
    check_mode(context, mode, shards)


def check_mode(context: Context, mode: str, shards: int) -> None:
    """Raise KinesisError if a stream of this mode, with these shards, would exceed a limit."""
    if context.limits is None:
        return
    if mode != ON_DEMAND:
        check_shards(context, shards)
        return
    most = context.limits.account_on_demand_streams
    if _on_demand_streams(context) >= most:
        raise service_errors.limit_exceeded(
            f"Account {ACCOUNT} has {most} streams in ON_DEMAND mode in {context.region.name}, "
            "which is the limit."
        )


def check_shards(context: Context, additional: int) -> None:
    """Raise KinesisError if the additional shards would exceed the account's shard limit."""
    if context.limits is None or additional <= 0:
        return
    region = context.region.name
    current, limit = _open_shards(context), context.limits.shards_in(region)
    if current + additional > limit:
        raise service_errors.limit_exceeded(
            f"This request would exceed the shard limit for the account {ACCOUNT} in {region}. "
            f"Current shard count for the account: {current}. Limit: {limit}. Number of additional "
            f"shards that would have resulted from this request: {additional}. Refer to the AWS "
            "Service Limits page "
            "(http://docs.aws.amazon.com/general/latest/gr/aws_service_limits.html) "
            "for current limits and how to request higher limits."
        )


def check_warm_throughput(context: Context, stream: str, mode: str, mibps: int) -> None:
    """Raise KinesisError if a stream of this mode may not have this warm throughput."""
    if mode != ON_DEMAND:
        raise service_errors.provisioned(stream, ACCOUNT)
    if not context.region.commitment.holds(context.now):
        raise service_errors.invalid_argument(
            f"Warm throughput requires MinimumThroughputBillingCommitment, which account {ACCOUNT} "
            f"has not enabled in {context.region.name}."
        )
    if context.limits is not None and mibps > limits.MAX_WARM_MIBPS:
        raise service_errors.limit_exceeded(
            f"Warm throughput of {mibps} MiB per second for stream {stream} under account "
            f"{ACCOUNT} is greater than {limits.MAX_WARM_MIBPS}, which is the limit."
        )


def check_consumers(context: Context, stream: Stream) -> None:
    """Raise KinesisError if a stream has as many registered consumers and queues as it may."""
    most = limits.MAX_CONSUMERS
    if stream.settings.is_on_demand and context.region.commitment.holds(context.now):
        most = limits.MAX_COMMITTED_CONSUMERS
    queues = context.region.all_queues(context.now, stream)
    if len(stream.consumers) + len(queues) >= most:
        raise service_errors.limit_exceeded(
            f"Stream {stream.name} under account {ACCOUNT} has {most} registered consumers, "
            "queues included, which is the limit."
        )


def check_no_queues(context: Context, stream: Stream, what: str) -> None:
    """Raise KinesisError if a stream has queues. what: that it may not have them for."""
    queues = context.region.all_queues(context.now, stream)
    if queues:
        names = ", ".join(queue.name for queue in queues)
        raise KinesisError(
            "ResourceInUseException",
            f"Stream {stream.name} under account {ACCOUNT} has queues: {names}. Delete them with "
            f"DeleteQueue before {what}.",
        )


def check_changing_queues(context: Context, queue: Queue | None = None) -> None:
    """Raise KinesisError if no queue may be created, or this one be deleted, for now."""
    if context.limits is None:
        return
    most = context.limits.changing_queues
    others = [other for other in context.region.all_queues(context.now) if other is not queue]
    if sum(not other.is_serving for other in others) >= most:
        raise service_errors.limit_exceeded(
            f"Account {ACCOUNT} has {most} queues in state CREATING or DELETING, which is the "
            "limit."
        )


def _open_shards(context: Context) -> int:
    """Count the shards that the shard limit applies to: those of provisioned streams."""
    return sum(
        len(stream.open_shards)
        for stream in context.region.all_streams(context.now)
        if not stream.settings.is_on_demand
    )


def _on_demand_streams(context: Context) -> int:
    return sum(stream.settings.is_on_demand for stream in context.region.all_streams(context.now))
