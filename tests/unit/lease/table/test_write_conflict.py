"""What a refused write means: a handoff, one's own earlier write, a loss, an impostor."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import (
    LeaseLoss,
    OwnWrites,
    StillHeld,
    resolve_conflict,
)

ROW = Lease("s", "s", ExtendedSequenceNumber("LATEST"), counter=5)
AT = ExtendedSequenceNumber("500", 3)
KNOWN = Lease("s", "s", ExtendedSequenceNumber("100"), owner="me", counter=7)
RENEWAL = requests.renew(KNOWN)
CHECKPOINT = requests.checkpoint(KNOWN, AT)


def asked(row: Lease) -> Lease:
    return replace(row, owner="thief", checkpoint_owner="me")


def test_a_handoff_leaves_the_counter_and_is_learnt() -> None:
    assert resolve_conflict(KNOWN, asked(KNOWN), "me", []) == StillHeld(asked(KNOWN))


def test_a_row_that_is_as_it_was_known_is_still_ones_own() -> None:
    """A refusal may not tell the row; until it is read, what had been asked may be withdrawn."""
    assert resolve_conflict(KNOWN, KNOWN, "me", []) == StillHeld(KNOWN)
    known_asked = asked(KNOWN)
    assert resolve_conflict(known_asked, known_asked, "me", []) == StillHeld(known_asked)


@pytest.mark.parametrize("update", [RENEWAL, CHECKPOINT])
def test_a_write_whose_answer_was_lost_is_recognised(update: Update) -> None:
    sent = [RENEWAL, CHECKPOINT]
    assert resolve_conflict(KNOWN, update.after, "me", sent) == StillHeld(update.after, update)
    after_handoff = asked(update.after)
    assert resolve_conflict(KNOWN, after_handoff, "me", sent) == StillHeld(after_handoff, update)


@pytest.mark.parametrize("unanswered", [[], [CHECKPOINT]])
def test_a_counter_that_none_of_ones_own_writes_explains_is_an_impostors(
    unanswered: list[Update],
) -> None:
    verdict = resolve_conflict(KNOWN, RENEWAL.after, "me", unanswered)
    assert isinstance(verdict, LeaseLoss)
    assert verdict.to_duplicate_worker
    assert "as worker me too" in verdict.why


def test_a_lease_that_a_leader_has_given_back_is_lost_to_no_impostor() -> None:
    known = requests.take(KNOWN, "me", 5).after
    reset = requests.reset(known, ExtendedSequenceNumber("TRIM_HORIZON")).after
    given = requests.assign_vacant(reset, "me").after
    verdict = resolve_conflict(known, given, "me", [requests.renew(known)])
    assert isinstance(verdict, LeaseLoss)
    assert not verdict.to_duplicate_worker
    assert "assigned to this worker again" in verdict.why
    # The leader had taken the lease itself, before it handed the lease over.
    handed_over = requests.assign(requests.take(reset, "leader", 7).after, "me").after
    verdict = resolve_conflict(known, handed_over, "me", [requests.renew(known)])
    assert isinstance(verdict, LeaseLoss)
    assert not verdict.to_duplicate_worker
    impostors = requests.take(given, "me", 1).after
    verdict = resolve_conflict(known, impostors, "me", [])
    assert isinstance(verdict, LeaseLoss)
    assert verdict.to_duplicate_worker


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (None, "deleted"),
        (replace(KNOWN, owner="other", counter=8), "worker other has taken it"),
        (replace(KNOWN, owner="me", checkpoint_owner="other"), "worker other has taken it"),
        (replace(KNOWN, owner=None, counter=9), "released or reset"),
        # A KCL 2.x takes by the counter and leaves checkpointOwner, which came with 3.0.
        (replace(asked(KNOWN), owner="java", counter=9), "worker java has taken it"),
    ],
)
def test_another_owner_is_a_loss_whatever_the_counter(row: Lease | None, why: str) -> None:
    verdict = resolve_conflict(KNOWN, row, "me", [RENEWAL, CHECKPOINT])
    assert isinstance(verdict, LeaseLoss)
    assert why in verdict.why
    assert not verdict.to_duplicate_worker


def test_a_counter_is_ones_own_up_to_the_highest_that_was_written() -> None:
    own = OwnWrites()
    own.add([requests.take(ROW, "me")])
    own.add([requests.take(replace(ROW, counter=2), "me")])  # by an outdated look
    assert [own.may_have_made(replace(ROW, counter=n)) for n in (4, 6, 7)] == [True, True, False]


def test_a_lease_that_was_never_written_is_anothers() -> None:
    own = OwnWrites()
    own.add([requests.take(ROW, "me")])
    assert not own.may_have_made(replace(ROW, key="t", counter=0))


def test_a_lease_that_is_gone_is_forgotten() -> None:
    own = OwnWrites()
    own.add([requests.take(replace(ROW, key=key), "me") for key in "st"])
    own.keep({"s"})
    assert own.may_have_made(ROW)
    assert not own.may_have_made(replace(ROW, key="t"))
