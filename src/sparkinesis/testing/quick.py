"""An application as a test runs it: on a local Kinesis, without the waits of a real one.

`quick` is for one with leases, `quick_queue` for one of a queue, whose waits a test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TypeVar

from sparkinesis.application import Application
from sparkinesis.events import Event
from sparkinesis.queue.application import QueueApplication
from sparkinesis.queue.finding import NewQueue
from sparkinesis.stream.address import FOUND_BY_BOTO
from sparkinesis.worker.aws_options import LONGEST
from sparkinesis.worker.lifecycle.streams.stream_config import Stream, StreamConfig, StreamTracker
from sparkinesis.worker.on_error import OnError, Retry
from sparkinesis.worker.options import UNLIMITED, WorkerOptions

REGION = "us-east-1"
_SHORT = 0.01
"""Seconds: the wait of whatever waits in a real application."""
_INTERVAL = 0.1
"""Seconds, the least that the options permit."""

_Config = TypeVar("_Config", Application, StreamConfig)


@dataclass(frozen=True, slots=True)
class QuickOptions(WorkerOptions):
    """Options of a worker whose leases never expire, however slow or busy the machine is."""

    def __post_init__(self) -> None:
        # A worker's options are checked again whenever one of them is replaced.
        object.__setattr__(self, "failover_time", _INTERVAL)
        WorkerOptions.__post_init__(self)
        object.__setattr__(self, "failover_time", LONGEST)

    @property
    def renew_interval(self) -> float:
        return _INTERVAL

    @property
    def taker_interval(self) -> float:
        return 2 * _SHORT


def quick(
    application: Application,
    endpoint: str,
    worker_id: str | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Application:
    """Return an application that reads the local Kinesis at ``endpoint``.

    Metrics, the HTTP address and credentials are left out, and all waits are short. The rest is as
    given.
    """
    given = application.options
    options = QuickOptions(
        **{
            **{one.name: getattr(given, one.name) for one in fields(WorkerOptions)},
            "idle_time": _SHORT,
            "shard_calls_per_second": UNLIMITED,
            "shard_bytes_per_second": UNLIMITED,
            "parent_poll_interval": _SHORT,
            "task_backoff": _SHORT,
            "audit_interval": _INTERVAL,
            "cleanup_interval": _INTERVAL,
            "metrics": (),
            "http": None,
            "on_event": on_event or given.on_event,
        }
    )
    streams = application.streams
    return replace(
        _placed(application, endpoint),
        dynamodb_endpoint=None,
        worker_id=worker_id or application.worker_id,
        options=options,
        streams=partial(_tracked, streams, endpoint)
        if callable(streams)
        else streams and [_stream(one, endpoint) for one in streams],
    )


def quick_queue(application: QueueApplication, endpoint: str, stream: str) -> QueueApplication:
    """Return an application that consumes a queue of the local Kinesis at ``endpoint``.

    Its queue begins with the first record of ``stream``, if none was given. What waits, waits for
    the time of the test.
    """
    new = application.create or NewQueue(stream)
    return replace(
        application,
        queue=_name(application.queue),
        region=REGION,
        endpoint=endpoint,
        credentials=FOUND_BY_BOTO,
        create=replace(
            new,
            stream=_name(new.stream),
            starting_position="trim_horizon",
            stream_endpoint=None,
        ),
        options=replace(application.options, acknowledge_within=0.0, metrics=(), http=None),
    )


def _tracked(streams: StreamTracker, endpoint: str) -> list[Stream]:
    return [_stream(one, endpoint) for one in streams()]


def _stream(stream: Stream, endpoint: str) -> Stream:
    if isinstance(stream, str):
        return _name(stream)
    return _placed(stream, endpoint)


def _name(stream: str) -> str:
    """Return the stream's name, also of an ARN: the local Kinesis has one account and region."""
    return stream.rpartition("/")[2]


def _placed(config: _Config, endpoint: str) -> _Config:
    policy = None if config.on_error is None else _without_waits(config.on_error)
    return replace(
        config,
        stream=config.stream and _name(config.stream),  # an ARN may name another region
        region=REGION,
        endpoint=endpoint,
        credentials=FOUND_BY_BOTO,
        on_error=policy,
    )


def _without_waits(policy: OnError) -> OnError:
    if not isinstance(policy, Retry):
        return policy
    return replace(policy, base=min(policy.base, _SHORT), cap=min(policy.cap, _INTERVAL))
