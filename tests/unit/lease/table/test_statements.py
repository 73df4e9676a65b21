"""The outcome of one statement of a batch, by its part of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import Failed, is_unsettled, outcome_of
from sparkinesis.stream.calls.retry import error_code

KNOWN = Lease("s", "s", ExtendedSequenceNumber("100"), owner="me", counter=7)
RENEWAL = requests.renew(KNOWN)
PASSING = [
    "ThrottlingError",
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
    "TransactionConflict",
    "InternalServerError",
]
FINAL = ["ConditionalCheckFailed", "ValidationError", "AccessDenied", "ResourceNotFound"]


def answer(code: str, row: Lease | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"Code": code, "Message": "said"}
    if row is not None:
        error["Item"] = encode_lease(row)
    return {"Error": error, "TableName": "t"}


@pytest.mark.parametrize("code", FINAL)
def test_an_error_that_stays_is_no_renewal_and_is_not_sent_again(code: str) -> None:
    outcome = outcome_of(RENEWAL, answer(code), was_in_doubt=False)
    assert isinstance(outcome, Failed)
    assert not is_unsettled(outcome)
    assert not outcome.is_in_doubt
    # As UpdateItem calls it.
    assert error_code(outcome.error).startswith(code.removesuffix("Error"))
    assert error_code(outcome.error).endswith("Exception")


def test_a_refusal_by_the_row_that_an_earlier_try_has_left_is_no_refusal() -> None:
    refusal = answer("ConditionalCheckFailed", RENEWAL.after)
    assert outcome_of(RENEWAL, refusal, was_in_doubt=True) == RENEWAL.after
    assert isinstance(outcome_of(RENEWAL, refusal, was_in_doubt=False), Failed)


@pytest.mark.parametrize("was_in_doubt", [True, False])
def test_a_refusal_by_another_row_is_one(was_in_doubt: bool) -> None:
    taken = replace(RENEWAL.after, owner="other")
    refusal = answer("ConditionalCheckFailed", taken)
    outcome = outcome_of(RENEWAL, refusal, was_in_doubt=was_in_doubt)
    assert isinstance(outcome, Failed)
    assert outcome.is_in_doubt == was_in_doubt


def test_doubt_stays_with_a_statement_whatever_comes_next() -> None:
    for code in ("ThrottlingError", "ConditionalCheckFailed"):
        outcome = outcome_of(RENEWAL, answer(code), was_in_doubt=True)
        assert isinstance(outcome, Failed)
        assert outcome.is_in_doubt
