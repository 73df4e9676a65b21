"""``KCLProcess``: runs a record processor of amazon_kclpy in this process, without a daemon."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkinesis.compat.kclpy.adapter import Checkpointer, make_factory
from sparkinesis.compat.kclpy.checkpoint_error import CheckpointError
from sparkinesis.compat.kclpy.messages import AnyCheckpointer, Record
from sparkinesis.compat.kclpy.settings import PROPERTIES_VARIABLE, read_application
from sparkinesis.errors import OptionError
from sparkinesis.worker.on_error import OnError, Retry, check_policy

__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]


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
