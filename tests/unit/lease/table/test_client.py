"""The results of calls on a lease table, as metrics name them."""

from __future__ import annotations

import pytest

from sparkinesis.lease.table.client import batch_result
from sparkinesis.lease.table.statements import errors_of


@pytest.mark.parametrize(
    ("codes", "result"),
    [
        ([], "ok"),
        ([None, None], "ok"),
        ([None, "ConditionalCheckFailed"], "refused"),
        (["ConditionalCheckFailed", "AccessDenied"], "failed"),
        (["AccessDenied", "InternalServerError", None], "retryable"),
        (["InternalServerError", "ConditionalCheckFailed", "ThrottlingError"], "throttled"),
    ],
)
def test_the_worst_statement_is_the_result_of_its_batch(
    codes: list[str | None], result: str
) -> None:
    responses = [{} if code is None else {"Error": {"Code": code}} for code in codes]
    assert batch_result(errors_of({"Responses": responses})) == result
