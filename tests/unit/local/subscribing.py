"""Subscriptions of `LocalKinesis` for tests, with shortened events."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkinesis.local import LocalKinesis
from sparkinesis.local.clock import IdleUntil
from sparkinesis.local.encoding.codecs import JsonCodec
from sparkinesis.local.model.registered_consumer import (
    End,
    ExceptionEvent,
    PushedEvent,
    ServedSubscription,
    Step,
)
from tests.unit.local.calls import ARN, SHARD_0, Stream, data


def register(stream: Stream, name: str = "app", **request: Any) -> str:
    """Register a consumer and return its ARN."""
    request |= {"StreamARN": ARN.replace("/s", f"/{stream.name}"), "ConsumerName": name}
    made = stream.kinesis.call("RegisterStreamConsumer", **request)
    arn: str = made["Consumer"]["ConsumerARN"]
    return arn


class Listener:
    """The client's end of one subscription, which counts how often it was woken."""

    def __init__(
        self,
        kinesis: LocalKinesis,
        consumer: str,
        kind: str = "TRIM_HORIZON",
        shard: str = SHARD_0,
        **start: Any,
    ) -> None:
        self.kinesis = kinesis
        self.subscription: ServedSubscription = kinesis.subscribe(
            ConsumerARN=consumer, ShardId=shard, StartingPosition={"Type": kind, **start}
        )
        self.woken = 0
        self.subscription.alarm.wake = self._wake

    def step(self) -> Step:
        return self.kinesis.next_step(self.subscription)

    def event(self) -> dict[str, Any]:
        """Return the next event; fail if there is none."""
        step = self.step()
        assert isinstance(step, PushedEvent), step
        event: dict[str, Any] = msgspec.json.decode(JsonCodec().encode(step.page))
        return event

    def data(self) -> list[str]:
        return data(self.event())

    def all(self) -> list[str]:
        """Return the data of all events up to the next wait."""
        found: list[str] = []
        while isinstance(step := self.step(), PushedEvent):
            found += data(msgspec.json.decode(JsonCodec().encode(step.page)))
        return found

    def waits_until(self) -> int:
        step = self.step()
        assert isinstance(step, IdleUntil), step
        return step.until_ms

    def failure(self) -> str:
        """Return the code of the exception that ends the subscription."""
        step = self.step()
        assert isinstance(step, ExceptionEvent), step
        assert self.has_ended()
        return step.code

    def has_ended(self) -> bool:
        return isinstance(self.step(), End)

    def release(self) -> None:
        self.kinesis.release(self.subscription)

    def _wake(self) -> None:
        self.woken += 1
