"""The results of calls on a lease table, as metrics name them."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from sparkinesis.lease.table.batch import errors_of
from sparkinesis.lease.table.measured_client import batch_result, measured_client, table_result
from sparkinesis.metrics.metrics import OFF


def service_error(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "UpdateItem")


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (service_error("ConditionalCheckFailedException"), "refused"),
        (service_error("ProvisionedThroughputExceededException"), "throttled"),
        (service_error("TransactionConflictException"), "retryable"),
        (service_error("InternalServerError", 500), "retryable"),
        (ReadTimeoutError(endpoint_url="http://x"), "retryable"),
        (service_error("ResourceNotFoundException"), "failed"),
        (service_error("AccessDeniedException"), "failed"),
    ],
)
def test_the_result_of_a_failed_attempt(error: Exception, result: str) -> None:
    assert table_result(error) == result


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


def test_without_metrics_a_client_is_as_it_was() -> None:
    client = object()
    assert measured_client(client, lambda: 0.0, OFF) is client
