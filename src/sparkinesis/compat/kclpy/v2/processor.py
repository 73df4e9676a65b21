"""The base class of version 2, and the adapter for processors of version 1."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from sparkinesis.compat.kclpy.messages import (
    InitializeInput,
    ProcessRecordsInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from sparkinesis.worker.processors.user_calls import call_user


class RecordProcessorBase:
    """The base class of version 2. Calls for one shard never overlap.

    A processor must override `process_records` and `shutdown`; the other methods are optional.
    """

    version = 2

    def initialize(self, initialize_input: InitializeInput) -> None:
        """The first call. After an exception, the error is logged and the call retried."""

    @abstractmethod
    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records, in order. After an exception they are redelivered; see docs/kclpy.md."""
        raise NotImplementedError

    @abstractmethod
    def shutdown(self, shutdown_input: ShutdownInput) -> None:
        """The last call. If the reason is TERMINATE (the shard has ended), it must checkpoint."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The last chance to checkpoint; `shutdown` with the reason ZOMBIE follows."""


class V1toV2Processor(RecordProcessorBase):
    """An adapter from version 2 to a processor of version 1."""

    def __init__(self, delegate: Any) -> None:
        """``delegate``: has the methods of version 1, whatever its base class."""
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
