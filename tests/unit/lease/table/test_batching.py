"""The suspicion against batches that the results of one raise."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    NoCredentialsError,
    ReadTimeoutError,
)

from sparkinesis.errors import AccessDeniedError, LeaseTableUnavailableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.batching import Result, Suspicion, suspect
from sparkinesis.lease.table.statements import Failed
from sparkinesis.lease.table.write_conflict import LeaseChangedError

DONE = Lease("s", "s", ExtendedSequenceNumber("100"))
REFUSED = LeaseChangedError("refused", DONE)


def failed(code: str, status: int = 400) -> Failed:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return Failed(ClientError(response, "BatchExecuteStatement"))


@pytest.mark.parametrize(
    "code", ["UnknownOperationException", "InvalidAction", "ValidationException"]
)
@pytest.mark.parametrize("others", [[], [DONE], [REFUSED]])
def test_what_a_server_does_not_know_is_no_matter_of_time(code: str, others: list[Result]) -> None:
    one = failed(code)
    assert suspect([*others, one]) == Suspicion(one, is_for_good=True)


def test_another_answer_that_no_retry_helps_may_be_given_for_a_while_only() -> None:
    one = failed("NotImplementedHere", 405)
    assert suspect([one, one]) == Suspicion(one, is_for_good=False)


def test_a_denial_is_one_of_batches_where_all_are_denied() -> None:
    one = failed("AccessDeniedException")
    assert suspect([one, one]) == Suspicion(one, is_for_good=False, cleared_by=AccessDeniedError)
    assert suspect([one, DONE]) is None


@pytest.mark.parametrize("code", ["InternalServerError", "InternalFailure", "500"])
def test_a_failure_of_the_server_may_be_an_outage(code: str) -> None:
    one = failed(code, 500)
    expected = Suspicion(one, is_for_good=False, cleared_by=LeaseTableUnavailableError)
    assert suspect([one, one]) == expected
    assert suspect([one, REFUSED]) is None


@pytest.mark.parametrize(
    "one",
    [
        failed("ThrottlingException"),
        failed("TransactionConflictException"),
        failed("ResourceNotFoundException"),
        Failed(ReadTimeoutError(endpoint_url="x")),
        Failed(ConnectionClosedError(endpoint_url="x")),
        Failed(NoCredentialsError()),
    ],
)
def test_what_a_single_write_would_meet_too_says_nothing_about_batches(one: Failed) -> None:
    assert suspect([one, one]) is None


def test_what_went_well_raises_no_suspicion() -> None:
    assert suspect([DONE, REFUSED, LeaseTableUnavailableError("unread")]) is None
