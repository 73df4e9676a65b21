"""The base class of version 2, and the adapter for processors of version 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparkinesis.compat.kclpy.messages import (
    AnyCheckpointer,
    InitializeInput,
    ProcessRecordsInput,
    Record,
    ShutdownInput,
    ShutdownRequestedInput,
)
from sparkinesis.compat.kclpy.must_override import must_override
from sparkinesis.worker.user_methods import call_user


class RecordProcessorBase:
    """The base class of version 2. Calls for one shard never overlap.

    A processor must override `process_records` and `shutdown`; the other methods are optional.
    """

    version = 2

    def initialize(self, initialize_input: InitializeInput) -> None:
        """The first call. After an exception, the error is logged and the call retried."""

    @must_override
    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records, in order. After an exception they are redelivered; see docs/kclpy.md."""
        raise NotImplementedError

    @must_override
    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        """The last call. If the reason is TERMINATE (the shard has ended), it must checkpoint."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The last chance to checkpoint; `shutdown` with the reason ZOMBIE follows."""


class Version1(Protocol):
    """The methods of a processor of version 1, whatever its base class."""

    def initialize(self, shard_id: str) -> None: ...
    def process_records(self, records: Sequence[Record], checkpointer: AnyCheckpointer) -> None: ...
    def shutdown(self, checkpointer: AnyCheckpointer, reason: str) -> None: ...
    def shutdown_requested(self, checkpointer: AnyCheckpointer) -> None: ...


class V1toV2Processor(RecordProcessorBase):
    """An adapter from version 2 to a processor of version 1."""

    def __init__(self, delegate: Version1) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: InitializeInput) -> None:
        call_user(self.delegate.initialize, initialize_input.shard_id)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        call_user(
            self.delegate.process_records,
            process_records_input.records,
            process_records_input.checkpointer,
        )

    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        call_user(self.delegate.shutdown, shutdown_input.checkpointer, shutdown_input.reason)

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        call_user(self.delegate.shutdown_requested, shutdown_requested_input.checkpointer)
