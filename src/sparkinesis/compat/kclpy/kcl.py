"""``KCLProcess``: runs a record processor of amazon_kclpy in this process, without a daemon."""

from __future__ import annotations

import copy
import functools
import logging
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from sparkinesis.compat.kclpy.messages import (
    ILLEGAL_ARGUMENT,
    AnyCheckpointer,
    CheckpointError,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownRequestedInput,
    checkpoint_error,
)
from sparkinesis.compat.kclpy.translation import PROPERTIES_VARIABLE, read_application
from sparkinesis.compat.kclpy.v2 import processor as v2
from sparkinesis.compat.kclpy.v3 import processor as v3
from sparkinesis.errors import OptionError, ProcessorError, SparkinesisError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer as WorkerCheckpointer
from sparkinesis.worker.on_error import OnError, Retry, check_policy
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from sparkinesis.worker.processors.user_calls import (
    call_user,
    made_by,
    refuse_asynchronous,
    refuse_factory,
)

__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]

_log = logging.getLogger(__name__)

_METHODS = {
    1: ("initialize", "process_records", "shutdown", "shutdown_requested"),
    2: ("initialize", "process_records", "shutdown", "shutdown_requested"),
    3: ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested"),
}


class RecordProcessorBase:
    """The base class of version 1. Calls for one shard never overlap."""

    version = 1

    def initialize(self, shard_id: str) -> None:
        """The first call. After an exception, the error is logged and the call retried."""

    @abstractmethod
    def process_records(self, records: Sequence[Record], checkpointer: AnyCheckpointer) -> None:
        """Process records, in order. After an exception they are redelivered; see docs/kclpy.md."""
        raise NotImplementedError

    @abstractmethod
    def shutdown(self, checkpointer: AnyCheckpointer, reason: str) -> None:
        """The last call. If the reason is TERMINATE (the shard has ended), it must checkpoint."""
        raise NotImplementedError

    def shutdown_requested(self, checkpointer: AnyCheckpointer) -> None:
        """The last chance to checkpoint; `shutdown` with the reason ZOMBIE follows."""


class KCLProcess:
    """Runs ``record_processor`` for all shards whose leases this worker holds.

    record_processor: an instance, of which each shard gets a copy; or a class, or a function that
    returns an instance.
    input_file, output_file, error_file: ignored; amazon_kclpy talks to its daemon by them.
    properties: the daemon's configuration file; default: the first command-line argument that ends
    in ``.properties``, else the file named by the environment variable
    SPARKINESIS_KCLPY_PROPERTIES.
    on_error: the policy for records whose processing raises; default: retry until it succeeds.

    Raises `ProcessorError` for an invalid record_processor, `OptionError` for an invalid on_error.
    """

    def __init__(
        self,
        record_processor: object,
        input_file: object = None,
        output_file: object = None,
        error_file: object = None,
        *,
        properties: str | os.PathLike[str] | None = None,
        on_error: OnError | None = None,
    ) -> None:
        del input_file, output_file, error_file
        self._on_error: OnError = Retry() if on_error is None else on_error
        check_policy(self._on_error)
        self._properties = properties
        self._exits: list[SystemExit] = []
        self._factory = make_factory(record_processor, self._exits.append)

    def run(self) -> None:
        """Process records until SIGTERM or SIGINT, or until a processor calls ``sys.exit``.

        Raises `OptionError` before any call if the properties file is missing or invalid; later the
        errors of ``Application.run``. The SystemExit of a processor is raised once the worker has
        shut down.
        """
        file = find_properties(self._properties, sys.argv[1:], os.environ)
        read_application(file, self._factory, self._on_error).run()
        if self._exits:
            raise self._exits[0]


def find_properties(
    given: str | os.PathLike[str] | None, arguments: Sequence[str], environment: Mapping[str, str]
) -> Path:
    """Return the path of the properties file. Raises `OptionError` if none is given."""
    if given is not None:
        return Path(given)
    named = next((text for text in arguments if text.endswith(".properties")), None)
    named = named or environment.get(PROPERTIES_VARIABLE)
    if not named:
        raise OptionError(
            "No properties file is given, so the stream to read is unknown. Start the program with "
            "`sparkinesis kclpy FILE.properties`, pass the file as an argument of the program or "
            f"as KCLProcess(..., properties=FILE), or set {PROPERTIES_VARIABLE}."
        )
    return Path(named)


class ExitRequestedError(Exception):
    """A processor called ``sys.exit``: its batch is not processed, and the worker shuts down."""


class KclpyCheckpointer:
    """A checkpointer with amazon_kclpy's interface.

    Raises `CheckpointError`, whose ``value`` is the name of the Java KCL's exception.
    """

    def __init__(self, checkpointer: WorkerCheckpointer) -> None:
        self._checkpointer = checkpointer

    def checkpoint(
        self, sequence_number: str | int | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Checkpoint up to this record; without arguments, up to the last delivered record.

        A sequence number alone means its first user record. As in the daemon, a sub-sequence number
        without a sequence number is ignored.
        """
        try:
            if sequence_number is None:
                self._checkpointer.checkpoint()
            else:
                # The daemon accepts an int as well as a string of digits.
                self._checkpointer.checkpoint(str(sequence_number), _sub(sub_sequence_number))
        except SparkinesisError as error:
            raise checkpoint_error(error) from error


def _sub(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise CheckpointError(ILLEGAL_ARGUMENT) from TypeError(
        f"sub_sequence_number must be an int, not {type(value).__name__}"
    )


Checkpointer = KclpyCheckpointer  # amazon_kclpy's name


class ShardProcessor(RecordProcessor):
    """A record processor of one shard that calls a processor of amazon_kclpy."""

    def __init__(
        self, processor: v3.RecordProcessorBase, on_exit: Callable[[SystemExit], None]
    ) -> None:
        """``processor``: has the methods of version 3, whatever its base class."""
        self._processor = processor
        self._on_exit = on_exit
        self._shard: ProcessorShard | None = None
        self._exited = False

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard
        self._call(self._processor.initialize, InitializeInput.of(shard))

    def process_records(self, batch: RecordBatch, checkpointer: WorkerCheckpointer) -> None:
        given = ProcessRecordsInput.of(batch, KclpyCheckpointer(checkpointer))
        self._call(self._processor.process_records, given)

    def lease_lost(self) -> None:
        if not self._exited:
            self._call(self._processor.lease_lost, LeaseLostInput())

    def shard_ended(self, checkpointer: WorkerCheckpointer) -> None:
        given = ShardEndedInput(checkpointer=KclpyCheckpointer(checkpointer))
        self._call(self._processor.shard_ended, given)

    def shutdown_requested(self, checkpointer: WorkerCheckpointer) -> None:
        if not self._exited:
            given = ShutdownRequestedInput(checkpointer=KclpyCheckpointer(checkpointer))
            self._call(self._processor.shutdown_requested, given)

    def _call(self, method: Callable[[Any], None], given: object) -> None:
        """Call a method unless the processor has exited, which would end amazon_kclpy's process."""
        if self._exited:
            self._refuse()
        try:
            call_user(method, given)
        except SystemExit as exited:
            self._exited = True
            self._on_exit(exited)
            if self._shard is not None:
                self._shard.request_shutdown()
            self._refuse()

    def _refuse(self) -> NoReturn:
        shard = self._shard.id if self._shard is not None else "a shard"
        raise ExitRequestedError(
            f"The processor of {shard} called sys.exit(); the worker shuts down."
        )


def make_factory(
    processor: object, on_exit: Callable[[SystemExit], None] = lambda _: None
) -> Callable[[], RecordProcessor]:
    """Return a factory of record processors from the argument of ``KCLProcess``.

    Each shard gets a copy of an instance in its original state. Raises `ProcessorError` if the
    argument is not a processor or cannot be copied.
    """
    kind = processor
    while isinstance(kind, functools.partial):
        kind = kind.func
    if isinstance(kind, type):
        _check(kind)
    if isinstance(processor, type):
        make: Callable[[], Any] = processor
        refuse_factory(make)
    elif hasattr(processor, "process_records"):
        _check(type(processor), processor)
        pristine = _copy(processor)
        make = lambda: _copy(pristine)  # noqa: E731 - a def would add nothing
    elif callable(processor):
        make = processor
        refuse_factory(make)
    else:
        raise ProcessorError(
            f"{processor!r} is not a record processor. Pass an instance of a class derived from "
            "sparkinesis.compat.kclpy.v3.processor.RecordProcessorBase, or the class itself."
        )

    def factory() -> RecordProcessor:
        made = made_by(make)
        _check(type(made), made)
        return ShardProcessor(_as_version_3(made), on_exit)

    return factory


def _copy(processor: object) -> Any:
    try:
        return copy.deepcopy(processor)
    except Exception as error:
        raise ProcessorError(
            f"{type(processor).__name__} cannot be copied ({type(error).__name__}: {error}). Each "
            "shard of this process needs a processor of its own. Pass the class or a function that "
            f"makes one instead, as in KCLProcess({type(processor).__name__}), or open what "
            "cannot be copied in initialize()."
        ) from error


def _as_version_3(processor: Any) -> v3.RecordProcessorBase:
    if processor.version == 1:
        processor = v2.V1toV2Processor(processor)
    if processor.version == 2:
        return v3.V2toV3Processor(processor)
    return cast("v3.RecordProcessorBase", processor)


def _check(made: type, processor: object = None) -> None:
    """Raise `ProcessorError` for a class that lacks methods that the daemon calls.

    ``processor``: an instance of the class, which may define methods itself.
    """
    version = getattr(made, "version", None)
    name = f"{made.__module__}.{made.__qualname__}"
    if version not in _METHODS:
        raise ProcessorError(
            f"{name} is not a record processor of amazon_kclpy: its version is {version!r}. "
            "Derive it from RecordProcessorBase of sparkinesis.compat.kclpy.v3.processor."
        )
    missing = [
        method
        for method in _METHODS[version]
        if not callable(getattr(made, method, None))
        or getattr(getattr(made, method), "__isabstractmethod__", False)
    ]
    if missing:
        others = [
            other
            for other, methods in _METHODS.items()
            if other > version and all(callable(getattr(made, each, None)) for each in methods)
        ]
        raise ProcessorError(
            f"{name} lacks {' and '.join(missing)}, which a processor of version {version} must "
            "define."
            + (f" It has the methods of version {others[0]}: import that one." if others else "")
        )
    refuse_asynchronous(made if processor is None else processor, _METHODS[version])
