"""L8: an application's only stream, and rows of other streams in its table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.worker.lifecycle.streams.open_stream import OnlyStream

MARK = StreamMark("eu-west-1", "1", "flights", 1_234)
OWN = Lease("s", "s", ExtendedSequenceNumber("LATEST"), mark=MARK)
JAVAS = replace(OWN, mark=None)
LATER = replace(OWN, mark=replace(MARK, created_ms=9_876))


class Asked:
    """What is asked of the service, and when; it fails once."""

    def __init__(self) -> None:
        self.now, self.times, self.mark = 100.0, list[float](), MARK

    def settle(self) -> None:
        self.times.append(self.now)
        if len(self.times) == 1:
            raise ServiceError("no answer")


def only_stream(asked: Asked) -> OnlyStream:
    settings = SimpleNamespace(clock=lambda: asked.now)
    stream: Any = SimpleNamespace(syncer=asked, settings=settings)
    return OnlyStream(stream, SimpleNamespace())  # type: ignore[arg-type]


def test_a_lease_that_names_another_stream_is_not_taken() -> None:
    stream = only_stream(Asked())
    several = replace(JAVAS, stream=StreamIdentifier("1", "flights", 1))
    assert [stream.may_take(one) for one in (OWN, JAVAS, LATER, several)] == [
        True,
        True,
        False,
        False,
    ]


def test_the_service_is_asked_after_a_doubt_and_while_rows_are_of_another_stream() -> None:
    asked = Asked()
    stream = only_stream(asked)
    stream.settle([OWN, JAVAS])
    assert asked.times == []
    stream.doubt(None)
    stream.settle([OWN])  # in vain, so it is asked again
    stream.settle([OWN])
    assert asked.times == [100.0]
    asked.now = 103.0
    stream.settle([OWN])
    asked.now = 106.0
    stream.settle([OWN])
    assert asked.times == [100.0, 103.0]
    stream.settle([OWN, LATER])
    asked.now = 107.0
    stream.settle([OWN, LATER])
    assert asked.times == [100.0, 103.0, 106.0]
    asked.now = 109.0
    stream.settle([OWN, LATER])
    assert asked.times == [100.0, 103.0, 106.0, 109.0]
