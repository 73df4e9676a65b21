"""When a hold is looked at again, and which call comes first."""

from __future__ import annotations

import math

import pytest

from sparkinesis.events import Event, HoldLost
from sparkinesis.metrics.metrics import OFF
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.client import Answered, QueueClient, Received
from sparkinesis.queue.hold_rules import ACKNOWLEDGE, RELEASE, Settlement
from sparkinesis.queue.holds import _MOST_GONE, HoldKeeper, HoldTerms, _Due
from sparkinesis.queue.lanes import Told
from sparkinesis.queue.record import Held
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.reporting.event_log import EventPublisher

ARN = "arn:aws:kinesis:eu-west-1:123456789012:queue/q"
VISIBILITY = 30


def received(number: int = 0) -> Received:
    return Received(f"handle{number}", f"id{number}", b"", receive_count=1)


def held(number: int) -> Held:
    return Held(received(number), 30.0, 3600.0)


class Heard(EventPublisher):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        self.events.append(event)


class Clocked:
    """A keeper whose calls a test makes in place of its thread, at times of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heard = Heard()
        settings = ReceiverSettings(
            QueueClient(QueueAddress(ARN, "orders", "eu-west-1")),
            Timing(clock=lambda: self.now),
            lambda low, _: low,
            OFF,
            self.heard,
            lambda *_: None,
        )
        self.keeper = HoldKeeper(settings, HoldTerms(VISIBILITY, True, 3600.0), linger=0.0)
        self.lanes = self.keeper._lanes

    def hold(self) -> Held:
        (found,) = self.keeper.hold([received()], self.now)
        return found

    def calls(self, lane: str) -> int:
        """Begin the calls of a lane that are due, and return their number."""
        return len(list(self.keeper._begin(getattr(self.lanes, lane), self.now)))

    def extend(self) -> None:
        """Look at the holds when they are to be extended."""
        self.now = VISIBILITY / 2
        self.keeper._look(self.now)

    def answer(self, one: Held, code: str | None) -> None:
        """Have the service answer to the extension of a record."""
        answers = [Answered(one.handle, code)]
        self.keeper._tell(Told(self.lanes.extend, [one], self.now, answers))
        self.keeper._hear()


def test_the_first_to_end_is_looked_at_first() -> None:
    due = _Due()
    assert due.first == math.inf
    late, soon = held(1), held(2)
    due.add(late, 20.0)
    due.add(soon, 10.0)
    assert due.first == 10.0
    assert list(due.pop(15.0)) == [soon]
    assert list(due.pop(20.0)) == [late]


def test_settled_records_are_forgotten_long_before_their_time() -> None:
    """A visibility timeout may be 12 hours, in which a process settles millions."""
    due = _Due()
    lasting = held(0)
    due.add(lasting, 40_000.0)
    for number in range(3 * _MOST_GONE):
        one = held(number + 1)
        due.add(one, 30_000.0)
        one.is_gone = True
        due.forget_gone(1)
        assert len(due._heap) <= _MOST_GONE + 2
    assert lasting in list(due.pop(math.inf))


@pytest.mark.parametrize("code", [None, "ThrottlingException"])
@pytest.mark.parametrize("settlement", [RELEASE, Settlement(20)])
def test_a_return_waits_for_the_answer_to_an_extension(
    settlement: Settlement, code: str | None
) -> None:
    """An extension that the service got later would hide the record for a whole hold more."""
    of = Clocked()
    one = of.hold()
    of.extend()
    assert of.calls("extend") == 1
    of.keeper.end(one, settlement)
    assert of.calls("give_back") == 0
    assert of.keeper.is_at_work
    of.answer(one, code)
    assert of.calls("give_back") == 1
    of.now += 5.0
    assert of.calls("extend") == 0, "not even one that failed"
    assert one.until == (VISIBILITY * 1.5 if code is None else VISIBILITY)


def test_a_return_takes_the_place_of_an_extension_that_is_not_sent_yet() -> None:
    of = Clocked()
    one = of.hold()
    of.extend()
    of.keeper.end(one, RELEASE)
    assert (of.calls("extend"), of.calls("give_back")) == (0, 1)


def test_an_acknowledgement_waits_for_no_extension() -> None:
    """Whichever of both comes first, the record is done."""
    of = Clocked()
    one = of.hold()
    of.extend()
    assert of.calls("extend") == 1
    of.keeper.end(one, ACKNOWLEDGE)
    assert of.calls("acknowledge") == 1


def test_a_return_of_a_record_that_is_lost_meanwhile_is_not_sent() -> None:
    of = Clocked()
    one = of.hold()
    of.extend()
    assert of.calls("extend") == 1
    of.keeper.end(one, RELEASE)
    of.answer(one, "ResourceNotFoundException")
    assert of.calls("give_back") == 0
    assert of.keeper.in_hand == 0
    assert [type(event) for event in of.heard.events] == [HoldLost]


def test_a_flush_that_gets_no_answer_ends_in_time() -> None:
    """A hold may last for hours: nothing but the end of the flush wakes the keeper's thread."""
    of = Clocked()
    one = of.hold()
    of.keeper.end(one, ACKNOWLEDGE)
    assert of.calls("acknowledge") == 1
    assert of.keeper._pause(of.now) == VISIBILITY / 2, "to extend it"
    of.keeper.close(10.0)
    assert of.keeper._pause(of.now) == 10.0
    assert not of.keeper._is_done(9.9)
    assert of.keeper._is_done(10.0)
