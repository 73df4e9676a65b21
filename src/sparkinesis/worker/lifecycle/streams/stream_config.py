"""The streams of an application that reads several, as its user gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.public import public
from sparkinesis.stream.address import (
    CredentialSource,
    StreamAddress,
    repr_without_secrets,
    stream_address,
)
from sparkinesis.stream.position import InitialPosition, position_option
from sparkinesis.worker.on_error import OnError, check_policy
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.function_processors import Processor, RecordFunction
from sparkinesis.worker.processors.processor import ProcessorFactory
from sparkinesis.worker.processors.user_calls import asynchronous, why_not_callable

_MOST_NAMED = 5

InitialPositionOption: TypeAlias = (
    Literal["latest", "LATEST", "trim_horizon", "TRIM_HORIZON"] | datetime
)


@public
@dataclass(frozen=True)
class StreamConfig:
    """One of several streams of an application; KCL users know it by the same name.

    stream: the stream's name, or its ARN for a stream of another account. All that is None is as
    the `Application` has it.
    processor: a class or a function for this stream.
    initial_position: as in `Application`.
    region: default: that of the ARN, or else the application's.
    credentials: such as an assumed role for a stream of another account.
    consumer_arn: with enhanced fan-out, a consumer that is registered already.

    Raises `OptionError`.
    """

    stream: str
    processor: Processor | None = None
    initial_position: InitialPositionOption | None = None
    on_error: OnError | None = None
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource | None = None
    consumer_arn: str | None = None

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        if not isinstance(self.stream, str) or not self.stream:
            raise OptionError(f"stream is {self.stream!r}; it must be a string, and not empty.")
        if self.on_error is not None:
            check_policy(self.on_error)
        if self.initial_position is not None:
            position_option("initial_position", self.initial_position)
        if self.credentials is not None and not isinstance(self.credentials, CredentialSource):
            raise OptionError("credentials must be CredentialSource(...).")
        stream_address(self.stream, self.region, self.endpoint)


Stream: TypeAlias = str | StreamConfig
"""A stream's name or ARN, or these with settings of its own."""

StreamTracker: TypeAlias = Callable[[], Iterable[Stream]]
"""Returns the streams to read now. It is asked again every minute."""


@public
@dataclass(frozen=True)
class FormerStreams:
    """What becomes of the leases of streams that have left the application.

    A worker stops reading such a stream at once. While its leases stay, a stream that returns is
    resumed at its checkpoints. The strategies are the KCL's
    ``FormerStreamsLeasesDeletionStrategy``.

    delete_after: seconds until the leases are deleted, while no worker reads the stream; None: they
    stay. Two failover times are the least, also for 0: so long takes a worker that still reads the
    stream, as during a deployment, to take over the leases of one that has ended.
    only: returns the streams whose leases may be deleted, as names or as
    ``<account>:<stream>:<creation epoch>``; None: those of all former streams.
    """

    delete_after: float | None = None
    only: Callable[[], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        after = self.delete_after
        if after is not None and (
            isinstance(after, bool) or not isinstance(after, int | float) or not after >= 0
        ):
            raise OptionError(f"delete_after is {after!r}; it takes seconds, 0 or more, or None.")
        if self.only is not None and not callable(self.only):
            raise OptionError(f"only is {self.only!r}; it takes a function, or None.")


KEEP_FORMER = FormerStreams()


class StreamSettings(msgspec.Struct, frozen=True):
    """A stream to read, with all of its settings."""

    address: StreamAddress
    factory: ProcessorFactory
    on_error: OnError
    initial: InitialPosition
    consumer_arn: str | None = None
    function: RecordFunction | None = None
    """The function that the processors call; None: a class or a factory was given."""

    @property
    def name(self) -> str:
        """The stream's ARN or name, as the user gave it."""
        return self.address.arn or self.address.name


def _check_tracker(function: Callable[..., object]) -> None:
    if asynchronous(function) == "is `async def`":
        raise OptionError(
            "The function given as streams is `async def`. Give a plain function that returns the "
            "streams; where it needs coroutines, let it run them by asyncio.run(...)."
        )
    if why := why_not_callable(function):
        raise OptionError(
            f"The function given as streams cannot be called without arguments: {why}. Give "
            "functools.partial(...) with all of them."
        )


def check_answer(streams: object) -> None:
    """Raise `OptionError` if the answer of a function for streams is no collection of them."""
    if isinstance(streams, str | bytes | Mapping | StreamConfig) or not isinstance(
        streams, Iterable
    ):
        raise OptionError(
            f"The function given as streams returned {streams!r}; it is to return a list of "
            "streams (names, ARNs, StreamConfig), even of a single one."
        )


def name_streams(streams: Sequence[str]) -> str:
    """Return the names of streams, given as names or ARNs, for people; of many, their number."""
    names = [stream.rpartition("/")[2] for stream in streams]
    return ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} streams"


def check_consumer(config: StreamConfig, options: WorkerOptions) -> None:
    """Raise `OptionError` if a stream's ``consumer_arn`` does not fit the stream or the options."""
    if options.retrieval != "efo":
        raise OptionError(
            f"The stream {config.stream!r} has a consumer_arn, which only retrieval='efo' uses."
        )
    fan_out = replace(options.fan_out, consumer_arn=config.consumer_arn)
    if fan_out.stream_of_arn != stream_address(config.stream).name:
        raise OptionError(
            f"consumer_arn is {config.consumer_arn!r}, which is a consumer of the stream "
            f"{fan_out.stream_of_arn!r}; the StreamConfig is of {config.stream!r}."
        )


def check_streams(streams: object) -> None:
    """Raise `OptionError` unless ``streams`` is a list, or a function that can be called."""
    if callable(streams):
        _check_tracker(streams)
        return
    if isinstance(streams, str | bytes) or not isinstance(streams, Sequence):
        raise OptionError(
            f"streams is {streams!r}; it takes a list of streams (names, ARNs, StreamConfig), or a "
            "function that returns one. Use stream= for an application that reads one stream."
        )
    if not streams:
        raise OptionError("streams is empty: there would be nothing to read.")
