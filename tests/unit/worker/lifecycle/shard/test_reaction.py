"""What becomes of the records of a call that raised, by the policy and the kind of error."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkinesis.errors import LeaseTableError, LeaseTableUnavailableError
from sparkinesis.events import BatchAction
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, Reaction, react
from sparkinesis.worker.on_error import OnError, Retry, Skip, Stop
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
