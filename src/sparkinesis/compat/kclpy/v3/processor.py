"""Processors of version 3, the current one; and how older ones become one."""

from __future__ import annotations

from typing import Protocol

from sparkinesis.compat.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from sparkinesis.compat.kclpy.must_override import must_override
from sparkinesis.compat.kclpy.v2.processor import RecordProcessorBase as Version2
from sparkinesis.worker.user_methods import call


class RecordProcessorBase:
    """Processes the records of one shard. Calls for one shard never overlap.

    `process_records` and `shard_ended` must be written; the others may be left out.
    """

    version = 3

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Called first. An exception is logged and the call repeated."""

    @must_override
    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records, in order. An exception makes them come again, see docs/kclpy.md."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Another worker has the shard now, or will: checkpoints are refused."""

    @must_override
    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """All of the shard was delivered. Must checkpoint; repeated until it does."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The last chance to checkpoint; `lease_lost` follows."""


class Version3(Protocol):
    """The methods of a processor of version 3, whatever it is derived from."""

    def initialize(self, initialize_input: InitializeInput) -> None: ...
    def process_records(self, process_records_input: ProcessRecordsInput) -> None: ...
    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None: ...
    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None: ...
    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None: ...


class V2toV3Processor(RecordProcessorBase):
    """A processor of version 2, called as one of version 3."""

    def __init__(self, delegate: Version2) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: InitializeInput) -> None:
        call(self.delegate.initialize, initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        call(self.delegate.process_records, process_records_input)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        del lease_lost_input
        call(self.delegate.shutdown, ShutdownInput.zombie())

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        call(self.delegate.shutdown, ShutdownInput.terminate(shard_ended_input.checkpointer))

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        call(self.delegate.shutdown_requested, shutdown_requested_input)
