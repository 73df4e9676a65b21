"""The settings of an application, checked, and what follows from them without a call."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from sparkinesis.errors import Check, OptionError, ProcessorError, check_all
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.metric import AwsPlace
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    StreamAddress,
    check_endpoint,
    check_place,
    check_table_name,
    is_loopback,
    repr_without_secrets,
    shown,
    stream_address,
)
from sparkinesis.stream.position import InitialPosition, position_option
from sparkinesis.worker.aws_options import check_consumer_name
from sparkinesis.worker.dead_letters.targets import DeadLetterStream
from sparkinesis.worker.lifecycle.streams.stream_config import (
    KEEP_FORMER,
    FormerStreams,
    InitialPositionOption,
    Stream,
    StreamConfig,
    StreamSettings,
    StreamTracker,
    check_answer,
    check_consumer,
    check_streams,
    name_streams,
)
from sparkinesis.worker.on_error import RETRY, DeadLetter, OnError, check_policy, last_resort
from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions
from sparkinesis.worker.processors.function_processors import (
    Processor,
    check_processor,
    function_of,
)

if TYPE_CHECKING:
    from sparkinesis.worker.processors.processor import ProcessorFactory

_WORKER_ID = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


@dataclass(frozen=True)
class ApplicationSettings:
    """The settings of an application; `Application` says what each of them is.

    Raises `OptionError` and `ProcessorError` before any call of AWS.
    """

    name: str
    stream: str | None = None
    processor: Processor | None = None
    region: str | None = None
    endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    initial_position: InitialPositionOption = "latest"
    on_error: OnError = RETRY
    worker_id: str | None = None
    options: WorkerOptions = DEFAULT_OPTIONS
    credentials: CredentialSource = FOUND_BY_BOTO
    table_name: str | None = None
    streams: Sequence[Stream] | StreamTracker | None = None
    former_streams: FormerStreams = KEEP_FORMER

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_all(self._checks())

    def _checks(self) -> Iterator[Check]:
        yield ("on_error",), lambda: check_policy(self.on_error)
        yield ("initial_position",), self.initial
        yield ("name",), self._check_name
        for name, kind in (
            ("options", WorkerOptions),
            ("credentials", CredentialSource),
            ("former_streams", FormerStreams),
        ):
            yield (name,), partial(self._check_kind, name, kind)
        if self.processor is not None:
            yield ("processor", "options"), partial(self._check, self.processor)
        yield ("region", "endpoint"), lambda: check_place(self.region, self.endpoint)
        stream = "stream", "region", "endpoint", "credentials", "name"
        if self.streams is None:
            yield (*stream, "on_error"), lambda: _require_no_circle({self.address(): self.on_error})
            yield ("former_streams",), self._check_former
        else:
            yield (*stream, "streams", "on_error", "options"), self._check_streams
        if self.dynamodb_endpoint is not None:
            endpoint = self.dynamodb_endpoint
            yield ("dynamodb_endpoint",), lambda: check_endpoint("dynamodb_endpoint", endpoint)
        yield (*stream, "options"), self._check_fan_out
        table = "name" if self.table_name is None else "table_name"
        yield ("name", table), lambda: check_table_name(table, self.table_name or self.name)
        yield ("worker_id",), self._check_worker_id

    def _check_name(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise OptionError(f"name is {self.name!r}; it must be a string, and not empty.")

    def _check_kind(self, name: str, kind: type) -> None:
        if not isinstance(getattr(self, name), kind):
            raise OptionError(f"{name} must be {kind.__name__}(...).")

    def _check_former(self) -> None:
        if self.former_streams != KEEP_FORMER:
            raise OptionError("former_streams works only with streams. Set both.")

    def _check_streams(self) -> None:
        if self.stream is not None:
            raise OptionError("Give either stream or streams, not both.")
        check_streams(self.streams)
        if self.streams is not None and not callable(self.streams):
            self._plans(self.streams)

    def _check_worker_id(self) -> None:
        if self.worker_id is not None and not _WORKER_ID.fullmatch(str(self.worker_id)):
            raise OptionError(
                f"worker_id is {shown(str(self.worker_id))}; it takes 1 to 256 characters that can "
                "be printed. Leave it out to have one made."
            )

    def _check(self, processor: Processor) -> None:
        found = processor_named(processor)
        try:
            check_processor(found, by_record=self.options.concurrency is not None)
        except ProcessorError as error:
            if found is processor:
                raise
            raise ProcessorError(f"The processor is {processor!r}. {error}") from error

    def _check_fan_out(self) -> None:
        fan_out = self.options.fan_out
        if self.options.retrieval != "efo":
            return
        if fan_out.consumer_arn is None and fan_out.consumer_name is None:
            try:
                check_consumer_name("name", self.name)
            except OptionError as error:
                raise OptionError(
                    f"{error} With retrieval='efo', the registered consumer has the application's "
                    "name: give FanOutOptions a consumer_name."
                ) from None
        if self.streams is not None:
            if fan_out.consumer_arn is not None:
                raise OptionError(
                    "consumer_arn is the consumer of one stream, and the application reads several:"
                    " give each StreamConfig its own consumer_arn."
                )
        elif fan_out.stream_of_arn not in {None, self.address().name}:
            raise OptionError(
                f"consumer_arn is {fan_out.consumer_arn!r}, which is a consumer of the stream "
                f"{fan_out.stream_of_arn!r}; the application reads {self.address().name!r}."
            )

    def initial(self) -> InitialPosition:
        """Return the initial position. Raises `OptionError`."""
        return position_option("initial_position", self.initial_position)

    def address(self) -> StreamAddress:
        """Return the stream's address. Raises `OptionError`, also if there are several streams."""
        if self.streams is not None:
            raise OptionError(f"The application {self.name!r} reads several streams.")
        if not isinstance(self.stream, str) or not self.stream:
            raise OptionError(
                f"stream is {self.stream!r}; it must be a string, and not empty. For several "
                "streams, give streams=[...]."
            )
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def plans(self) -> list[StreamSettings]:
        """Return the streams to read, each with its settings; calls the user's function, if any.

        Raises `OptionError`, `ProcessorError` and the errors of the function.
        """
        if self.streams is None:
            return self._plans([str(self.stream)])
        if not callable(self.streams):
            return self._plans(self.streams)
        streams = self.streams()
        check_answer(streams)
        return self._plans(streams)

    def _plans(self, streams: Iterable[Stream]) -> list[StreamSettings]:
        plans: dict[StreamAddress, StreamSettings] = {}
        for plan in map(self._plan, streams):
            if plans.setdefault(plan.address, plan) is not plan:
                raise OptionError(f"streams has {plan.name!r} twice. Leave one out.")
        _require_no_circle({address: plan.on_error for address, plan in plans.items()})
        return list(plans.values())

    def _plan(self, stream: Stream) -> StreamSettings:
        if not isinstance(stream, str | StreamConfig):
            raise OptionError(
                f"streams has {stream!r}; it takes names, ARNs and StreamConfig(...)."
            )
        one = StreamConfig(stream) if isinstance(stream, str) else stream
        # The region of an ARN goes before the application's, which is for streams by name.
        region = one.region or (None if one.stream.startswith("arn:") else self.region)
        given = processor_named(one.processor or self.processor)
        if given is None:
            raise OptionError(
                f"The stream {one.stream!r} has no processor, and neither has the application."
            )
        if one.consumer_arn is not None:
            check_consumer(one, self.options)
        if one.processor is not None:
            self._check(one.processor)
        function = function_of(given)
        return StreamSettings(
            stream_address(
                one.stream,
                region if self.streams is not None else self.region,
                one.endpoint or self.endpoint,
                one.credentials or self.credentials,
            ),
            cast("ProcessorFactory", given) if function is None else function.new_processor,
            one.on_error or self.on_error,
            self.initial()
            if one.initial_position is None
            else position_option("initial_position", one.initial_position),
            one.consumer_arn,
            function,
        )

    def stream_names(self) -> str:
        """Return the streams' names for people. Calls nothing."""
        if self.streams is None:
            return self.address().name
        if callable(self.streams):
            return "several streams"
        return name_streams([plan.name for plan in self._plans(self.streams)])

    def place(self) -> AwsPlace:
        """Return what exporters of metrics that call AWS take from the application."""
        return AwsPlace(
            region=self.region if self.streams is not None else self.address().region,
            # Of a local server, as for the lease table: metrics of tests do not reach AWS.
            endpoint=self.endpoint if is_loopback(self.endpoint) else None,
            credentials=self.credentials,
            has_several_streams=self.streams is not None,
        )

    def table(self) -> LeaseTable:
        """Return the lease table. Nothing is called or created."""
        endpoint = self.dynamodb_endpoint
        if endpoint is None and is_loopback(self.endpoint):
            # A VPC endpoint of Kinesis, in contrast, does not answer for DynamoDB.
            endpoint = self.endpoint
        region = self.region if self.streams is not None else self.address().region
        return LeaseTable(self.table_name or self.name, region, endpoint, self.credentials)


_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def processor_named(given: object) -> object:
    """Return the processor that a name stands for, whose module is imported; others as they are.

    Raises `ProcessorError` for a name of nothing.
    """
    if not isinstance(given, str):
        return given
    import difflib  # noqa: PLC0415 - few processors are given by name
    import pkgutil  # noqa: PLC0415

    module, _, name = given.partition(":")
    if not _NAME.fullmatch(given):
        raise ProcessorError(
            f"The processor is {given[:100]!r}; a processor by name is 'package.module:name', with "
            "the module as in an import, and the name of a class or a function of that module."
        )
    try:
        return pkgutil.resolve_name(given)
    except AttributeError as error:
        if module not in sys.modules:  # the module's own code has raised it
            raise _not_importable(given, module, error) from error
        near = difflib.get_close_matches(name, vars(sys.modules[module]), 1)
        advice = f" Did you mean {module}:{near[0]}?" if near else ""
        raise ProcessorError(
            f"The processor is {given!r}, but the module {module} has no {name}.{advice}"
        ) from error
    except Exception as error:
        raise _not_importable(given, module, error) from error


def _not_importable(given: str, module: str, error: Exception) -> ProcessorError:
    return ProcessorError(
        f"The processor is {given!r}, but the module {module} cannot be imported: "
        f"{type(error).__name__}: {error}. Python looks for it as for any import: in the folder of "
        "the program, in PYTHONPATH and among the installed packages."
    )


def _require_no_circle(policies: Mapping[StreamAddress, OnError]) -> None:
    """Raise `OptionError` if a dead letter would be read by the application for ever.

    policies: what becomes of the failures of each stream that the application reads. The targets
    that are functions are not known.
    """
    follows = {one: _next(policy, policies) for one, policy in policies.items()}
    for first in policies:
        path, at = [first], follows[first]
        while at is not None and at not in path:
            path.append(at)
            at = follows[at]
        if at is None:
            continue
        names = " to ".join(repr(one.arn or one.name) for one in (*path[path.index(at) :], at))
        raise OptionError(
            "The application reads the stream that it puts dead letters into: a record that fails "
            f"again would go from {names} for ever. Take the dead-letter stream out of the streams "
            "to read, or give its StreamConfig another on_error."
        )


def _next(policy: OnError, streams: Mapping[StreamAddress, OnError]) -> StreamAddress | None:
    """Return the stream of the application that takes the dead letters; None: no such stream."""
    action = last_resort(policy)
    if not isinstance(action, DeadLetter) or not isinstance(action.target, DeadLetterStream):
        return None
    target = action.target.address()
    return next((one for one in streams if _is_same(one, target)), None)


def _is_same(one: StreamAddress, other: StreamAddress) -> bool:
    """Return True if both are one stream, as far as can be known without a call.

    The account of a stream without an ARN is that of its credentials. With one ARN, and the same
    credentials, it is taken for the ARN's: two streams of one name need two ARNs.
    """
    if one.name != other.name or one.endpoint != other.endpoint:
        return False
    if one.arn is not None and other.arn is not None:
        return one.arn == other.arn
    return one.credentials == other.credentials and _region(one) == _region(other)


def _region(address: StreamAddress) -> str | None:
    from sparkinesis.stream.calls.default_region import default_region  # noqa: PLC0415 - slow to import

    if address.region is not None:
        return address.region
    is_local = is_loopback(address.endpoint)
    return default_region(address.credentials.profile, is_local=is_local)[0]
