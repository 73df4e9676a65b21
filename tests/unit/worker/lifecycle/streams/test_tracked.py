"""What a worker decides about one of several streams."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError, StreamNotFoundError
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.stream_identity import StreamIdentity
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.worker.lifecycle.streams.stream_config import StreamSettings
from sparkinesis.worker.lifecycle.streams.tracked import (
    Tracked,
    clash,
    has_earlier_epoch,
    newest_epochs,
    recheck_interval,
    track,
    unreadable_for,
)
from sparkinesis.worker.on_error import RETRY
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.unit.lease.rules.several import lease_of

OPEN: Any = object()
DENIED, GONE = AccessDeniedError("denied"), StreamNotFoundError("gone")


def plan(
    name: str = "web", initial: InitialPosition = LATEST, region: str = "eu-west-1"
) -> StreamSettings:
    return StreamSettings(StreamAddress(name, None, region), RecordProcessor, RETRY, initial)


def identity(epoch: int = 1_000, at: float = 0.0, *, was_listed: bool = False) -> StreamIdentity:
    """The service's clock is 2,000 s at the time 0."""
    stream = StreamIdentifier("1", "web", epoch)
    return StreamIdentity("arn", stream, 2_000_000 + round(at * 1000), at, was_listed)


def opened(epoch: int = 1_000) -> Tracked:
    return Tracked(plan(), 0.0).asked(0.0, 0).identified(identity(epoch)).opened(OPEN)


def is_asked(one: Tracked, now: float, **more: Any) -> bool:
    given = {"audits": False, "is_doubted": False, "newest_epoch": 0, "interval": 60.0}
    return one.is_to_be_asked(now, **{**given, **more})


def test_a_new_stream_is_asked_for_at_once_and_opened_once_it_is_known() -> None:
    one = Tracked(plan(), 0.0)
    assert is_asked(one, 0.0)
    assert not one.is_to_be_opened(0.0)
    one = one.asked(0.0, 0).identified(identity())
    assert one.is_to_be_opened(0.0)
    assert not one.opened(OPEN).is_to_be_opened(0.0)


def test_the_auditor_of_a_stream_asks_every_interval_and_nobody_else_unless_in_doubt() -> None:
    assert not is_asked(opened(), 59.9, audits=True)
    assert is_asked(opened(), 60.0, audits=True)
    assert not is_asked(opened(), 1e6)
    assert is_asked(opened(), 1.0, is_doubted=True), "a doubted stream, at once"


def test_a_newer_stream_of_the_name_in_the_table_is_asked_about_once() -> None:
    one = opened(1_000)
    assert not is_asked(one, 1.0, newest_epoch=1_000)
    assert is_asked(one, 1.0, newest_epoch=1_001)
    # It may be a stream of another region, whose leases look the same.
    assert not is_asked(one.asked(1.0, 1_001), 2.0, newest_epoch=1_001)


def test_a_stream_that_failed_waits_unless_its_leases_show_that_it_is_there_again() -> None:
    one = opened(1_000).failed(GONE, 10.0, 5.0).closed()
    assert not is_asked(one, 14.9)
    assert is_asked(one, 15.0)
    assert is_asked(one, 10.1, newest_epoch=1_001)
    assert one.is_missing
    assert one.problem is not None
    assert one.problem.tries == 1
    assert one.failed(DENIED, 20.0, 5.0).problem == one.problem.__class__(
        DENIED, "AccessDeniedError: denied", 10.0, 2, 25.0
    )


def test_the_same_stream_found_again_is_without_problem_only_if_it_is_open() -> None:
    doubted = opened().failed(DENIED, 1.0, 5.0)
    assert doubted.identified(identity()).problem is None
    unopened = Tracked(plan(), 0.0).identified(identity()).failed(DENIED, 1.0, 5.0)
    assert unopened.identified(identity()).problem is not None


@pytest.mark.parametrize(
    ("one", "has_earlier", "expected"),
    [
        pytest.param(Tracked(plan(), 0.0), False, LATEST, id="at once"),
        pytest.param(
            Tracked(plan(initial=TRIM_HORIZON), 0.0, is_late=True), False, TRIM_HORIZON, id="other"
        ),
        pytest.param(
            Tracked(plan(), 10.0).failed(DENIED, 11.0, 5.0),
            False,
            AtTimestamp(2_010_000),
            id="since it was told",
        ),
        pytest.param(opened(999), False, TRIM_HORIZON, id="made anew before it was told"),
        pytest.param(Tracked(plan(), 0.0), True, TRIM_HORIZON, id="leases of an earlier one"),
    ],
)
def test_latest_is_the_moment_at_which_the_stream_was_named(
    one: Tracked, has_earlier: bool, expected: InitialPosition
) -> None:
    epoch = 2_000 if one.stream is not None else 1_000
    found = one.identified(identity(epoch, at=70.0))
    assert found.initial(has_earlier=has_earlier) == expected


def test_a_stream_that_came_later_than_it_was_named_begins_with_its_first_record() -> None:
    missing = Tracked(plan(), 0.0).failed(GONE, 1.0, 5.0).closed()
    assert missing.identified(identity(2_003, at=5.0)).initial(has_earlier=False) is TRIM_HORIZON


def test_streams_keep_their_state_when_the_answer_changes() -> None:
    one = opened()
    kept = track({one.plan.address: one}, [plan(), plan("new")], 7.0)
    assert [each.named_at for each in kept.values()] == [0.0, 7.0]
    assert kept[one.plan.address].stream is OPEN
    assert track(kept, [plan("new")], 8.0).keys() == {plan("new").address}


def test_only_streams_that_need_a_call_of_their_own_put_off_the_next_look() -> None:
    alone = [Tracked(plan(), 0.0).identified(identity()) for _ in range(500)]
    listed = [Tracked(plan(), 0.0).identified(identity(was_listed=True)) for _ in range(500)]
    assert recheck_interval([*alone, *listed], 60.0, 0.5) == 250.0
    assert recheck_interval(listed, 60.0, 0.5) == 60.0


def test_the_newest_epoch_of_each_name_and_earlier_ones() -> None:
    old, new = StreamIdentifier("1", "web", 1), StreamIdentifier("1", "web", 2)
    other = StreamIdentifier("2", "web", 1)
    assert newest_epochs([lease_of(new), lease_of(old)]) == {"web": 2}
    assert has_earlier_epoch(new, [old])
    assert not has_earlier_epoch(old, [new, old])
    assert not has_earlier_epoch(new, [other, new])


def test_two_streams_of_one_identifier_are_told_by_why() -> None:
    one, stream = opened(), StreamIdentifier("1", "web", 1_000)
    abroad = Tracked(plan(region="us-east-1"), 0.0)
    assert "given twice" in str(clash(one, Tracked(plan(), 0.0), stream))
    assert "do not name the region" in str(clash(one, abroad, stream))


def test_a_stream_is_unreadable_since_its_first_failure() -> None:
    fine, failing = opened(), Tracked(plan("app"), 0.0)
    failing = failing.failed(DENIED, 10.0, 5.0).failed(GONE, 15.0, 5.0)
    assert unreadable_for([fine, failing], 30.0) == {"app": 20.0}
    assert unreadable_for([failing.identified(identity()).opened(OPEN)], 30.0) == {}
    # Of two of a name, the longer time counts.
    both = [Tracked(plan(), 0.0).failed(DENIED, at, 5.0) for at in (10.0, 20.0)]
    assert unreadable_for(both, 30.0) == unreadable_for(both[::-1], 30.0) == {"web": 20.0}
