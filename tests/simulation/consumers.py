"""An operator who registers and deregisters consumers of a stream beside the application."""

from __future__ import annotations

from sparkinesis.local import LocalKinesis
from sparkinesis.local.model.limits import MAX_CONSUMERS
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.service_errors import KinesisError


class Operator:
    """A person at the console, whose calls meet no limit, delay or fault."""

    def __init__(self, kinesis: LocalKinesis, stream: Stream) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._others: list[str] = []
        self._count = 0

    def register(self, name: str) -> str:
        """Registers a consumer that is active at once; returns its ARN."""
        delay_ms, self._kinesis.consumer_delay_ms = self._kinesis.consumer_delay_ms, 0
        self._call("RegisterStreamConsumer", name)
        self._kinesis.consumer_delay_ms = delay_ms
        return self._stream.consumers[name].arn

    def deregister(self, name: str) -> None:
        """Deregister a consumer, if it is there."""
        if name not in self._stream.consumers:
            return
        try:
            self._call("DeregisterStreamConsumer", name)
        except KinesisError as error:
            # One that was being deleted stays until the next call, which finds that it is gone.
            if error.code != "ResourceNotFoundException":
                raise

    def crowd(self) -> None:
        """Registers the maximum of consumers."""
        while len(self._stream.consumers) < MAX_CONSUMERS:
            # One that is being deleted keeps its name.
            name = f"other-{self._count}"
            self._count += 1
            self._others.append(name)
            self.register(name)

    def disperse(self) -> None:
        """Deregisters the consumers of `crowd`."""
        for name in self._others:
            self.deregister(name)
        self._others.clear()

    def _call(self, operation: str, name: str) -> None:
        limits, self._kinesis.limits = self._kinesis.limits, None
        try:
            self._kinesis.call(operation, StreamARN=self._stream.arn, ConsumerName=name)
        finally:
            self._kinesis.limits = limits
