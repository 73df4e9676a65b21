"""The base class of version 3, the current one, and the adapter for processors of version 2."""

from __future__ import annotations

from abc import abstractmethod

from sparkinesis.compat.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownInput,
    ShutdownRequestedInput,
)
from sparkinesis.compat.kclpy.v2.processor import RecordProcessorBase as Version2
from sparkinesis.worker.processors.user_calls import call_user


class RecordProcessorBase:
    """The base class of version 3. Calls for one shard never overlap.

    A processor must override `process_records` and `shard_ended`; the other methods are optional.
    The marks of these two have no effect by themselves: amazon_kclpy allows instances that lack
    such a method, and the metaclass of `abc.ABC` may conflict with other bases of user code.
    """

    version = 3

    def initialize(self, initialize_input: InitializeInput) -> None:
        """The first call. After an exception, the error is logged and the call retried."""

    @abstractmethod
    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process records, in order. After an exception they are redelivered; see docs/kclpy.md."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Another worker holds or takes the lease: checkpoints are refused."""

    @abstractmethod
    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Must checkpoint: all records of the shard were delivered. Called again until it does."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The last chance to checkpoint; `lease_lost` follows."""


class V2toV3Processor(RecordProcessorBase):
    """An adapter from version 3 to a processor of version 2."""

    def __init__(self, delegate: Version2) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: InitializeInput) -> None:
        call_user(self.delegate.initialize, initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        call_user(self.delegate.process_records, process_records_input)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        del lease_lost_input
        call_user(self.delegate.shutdown, ShutdownInput.zombie())

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        call_user(self.delegate.shutdown, ShutdownInput.terminate(shard_ended_input.checkpointer))

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        call_user(self.delegate.shutdown_requested, shutdown_requested_input)
