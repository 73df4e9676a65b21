"""What becomes of the records of a call that raised, by the policy and the kind of error."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableError,
    LeaseTableUnavailableError,
    SinkUnavailableError,
)
from sparkinesis.events import BatchAction
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, Reaction, backoff, react
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
from tests.unit.worker.delivering import Setting, at, batch_of


def reaction(
    error: BaseException,
    on_error: OnError,
    last: str = "1",
    *,
    is_ending: bool = False,
    is_reset: bool = False,
) -> Reaction:
    """The reaction to the failure of records 1, 2 and 3."""
    attempt = Attempt(batch_of(1, 2, 3), failures=1)
    settings = cast(Any, Setting(on_error))
    return react(attempt, error, settings, at(last), is_ending=is_ending, is_reset=is_reset)


def numbers(found: Reaction) -> list[str]:
    return [record.sequence_number for record in found.rest.batch.records]


def test_what_is_checkpointed_comes_no_more() -> None:
    for policy, action in ((Retry(), BatchAction.RETRY), (Stop(), BatchAction.STOP)):
        found = reaction(ValueError("bad"), policy)
        assert (found.action, numbers(found), found.rest.failures) == (action, ["2", "3"], 2)
    assert reaction(ValueError("bad"), Stop(), "3").action is BatchAction.NONE_LEFT


@pytest.mark.parametrize("error", [LeaseTableUnavailableError("away"), LeaseTableError("no")])
def test_an_outage_is_waited_for_without_the_records_that_are_checkpointed(
    error: Exception,
) -> None:
    found = reaction(error, Stop())
    assert (found.action, numbers(found)) == (BatchAction.WAIT, ["2", "3"])
    assert (found.rest.failures, found.rest.denials) == (1, int(type(error) is LeaseTableError))
    assert found.pause > 0


def test_who_leaves_or_moves_the_shard_blames_no_record() -> None:
    error = ValueError("bad")
    assert reaction(error, Skip(), is_ending=True).action is BatchAction.RELEASE
    assert reaction(error, Skip(), is_reset=True).action is BatchAction.NONE_LEFT
    assert reaction(error, Skip(), is_ending=True, is_reset=True).action is BatchAction.RELEASE


def test_waits_double_up_to_half_a_minute() -> None:
    assert [backoff(4.0, failures) for failures in (1, 2, 3, 4, 5)] == [4.0, 8.0, 16.0, 30.0, 30.0]


def _caused_by(cause: BaseException | None, errors: int) -> BaseException:
    """An error of the user's own, behind others, which ``cause`` is the reason of."""
    for n in range(errors):
        error = ValueError(f"error {n}")
        error.__cause__ = cause
        cause = error
    assert cause is not None
    return cause


@pytest.mark.parametrize("errors", [0, 1, 3])
def test_an_outage_is_found_behind_the_errors_of_the_program(errors: int) -> None:
    for kind in (SinkUnavailableError, AccessDeniedError):
        assert reaction(_caused_by(kind("no"), errors), Skip()).action is BatchAction.WAIT
    assert reaction(_caused_by(KeyError("no"), errors), Skip()).action is BatchAction.SPLIT


def test_causes_may_lead_in_a_circle() -> None:
    error = ValueError("bad")
    error.__cause__ = ValueError("worse")
    error.__cause__.__cause__ = error
    assert reaction(error, Skip()).action is BatchAction.SPLIT


@pytest.mark.parametrize(
    ("on_error", "action"),
    [
        (Skip(), BatchAction.SKIP),
        (DeadLetter(print), BatchAction.DEAD_LETTER),
        (Stop(), BatchAction.STOP),
        (Retry(then=Stop()), BatchAction.RETRY),
        (Retry(2, then=Skip()), BatchAction.SKIP),
        (Retry(3, then=Skip()), BatchAction.RETRY),
    ],
    ids=str,
)
def test_a_record_that_fails_alone_meets_the_policy(on_error: OnError, action: BatchAction) -> None:
    settings = cast(Any, Setting(on_error))
    attempt = Attempt(batch_of(7), failures=1)
    found = react(attempt, ValueError("bad"), settings, at("1"), is_ending=False, is_reset=False)
    assert (found.action, found.rest.failures, numbers(found)) == (action, 2, ["7"])
    assert found.pause == (1.0 if action is BatchAction.RETRY else 0.0)


@pytest.mark.parametrize("on_error", [Skip(), DeadLetter(print)], ids=str)
def test_an_empty_batch_that_fails_is_no_letter(on_error: OnError) -> None:
    settings = cast(Any, Setting(on_error))
    found = react(
        Attempt(batch_of()), ValueError("bad"), settings, at("1"), is_ending=False, is_reset=False
    )
    assert (found.action, found.rest.failures) == (BatchAction.SKIP, 1)


def test_the_last_record_behind_a_checkpoint_is_tried_alone_before_it_is_given_up() -> None:
    found = reaction(ValueError("bad"), Skip(), "2")
    assert (found.action, numbers(found), found.pause) == (BatchAction.RETRY, ["3"], 0.0)
    assert reaction(ValueError("bad"), Skip()).action is BatchAction.SPLIT
