"""Creating lease tables, and refusing tables that are none."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError, LeaseTableError
from sparkinesis.lease.table.provisioning import Patience
from sparkinesis.local import Fault, LocalServer
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.failing import Failing
from tests.integration.lease.conftest import table_of

SERVER = "moto"
_names = (f"provisioned-{i}" for i in itertools.count())


def test_a_missing_table_is_created_as_asked(server: LocalServer, dynamodb: Any) -> None:
    table = table_of(server, next(_names))
    options = LeaseTableOptions(
        "PROVISIONED",
        7,
        8,
        point_in_time_recovery=True,
        deletion_protection=True,
        tags=(("team", "flights"),),
    )
    assert table.provision(options)
    description = dynamodb.describe_table(TableName=table.name)["Table"]
    assert description["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    throughput = description["ProvisionedThroughput"]
    assert (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"]) == (7, 8)
    assert description["DeletionProtectionEnabled"]
    tags = dynamodb.list_tags_of_resource(ResourceArn=description["TableArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "flights"}]
    assert recovery(dynamodb, table.name) == "ENABLED"
    assert table.leases() == []


def test_an_existing_table_is_left_as_it_is_but_for_recovery(
    server: LocalServer, dynamodb: Any
) -> None:
    table = table_of(server, next(_names))
    assert table.provision(LeaseTableOptions())
    before = dynamodb.describe_table(TableName=table.name)["Table"]
    assert before["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert recovery(dynamodb, table.name) == "DISABLED"
    assert not table.provision(
        LeaseTableOptions("PROVISIONED", point_in_time_recovery=True, deletion_protection=True)
    )
    assert dynamodb.describe_table(TableName=table.name)["Table"] == before
    assert recovery(dynamodb, table.name) == "ENABLED"
    assert not table.provision(LeaseTableOptions())
    assert recovery(dynamodb, table.name) == "ENABLED"


def test_workers_that_start_at_once_create_one_table(server: LocalServer) -> None:
    table = table_of(server, next(_names))
    with ThreadPoolExecutor(6) as pool:
        created = list(pool.map(lambda _: table.provision(LeaseTableOptions()), range(6)))
    assert created.count(True) == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([("leaseKey", "N", "HASH")], r"leaseKey \(N, HASH\)"),
        ([("id", "S", "HASH")], r"id \(S, HASH\)"),
        (
            [("leaseKey", "S", "HASH"), ("at", "N", "RANGE")],
            r"leaseKey \(S, HASH\), at \(N, RANGE\)",
        ),
    ],
)
def test_a_table_with_another_key_is_refused_and_nothing_is_written(
    server: LocalServer, dynamodb: Any, keys: list[tuple[str, str, str]], said: str
) -> None:
    name = next(_names)
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, _, role in keys],
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": t} for k, t, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    options = LeaseTableOptions(point_in_time_recovery=True)
    with pytest.raises(LeaseTableError, match=f"'{name}'.* is no lease table: its key is {said},"):
        table_of(server, name).provision(options)
    assert recovery(dynamodb, name) == "DISABLED"


def test_a_table_that_never_becomes_usable_is_given_up(server: LocalServer) -> None:
    table = table_of(server, next(_names))
    missing = Fault.error("ResourceNotFoundException")
    server.kinesis.faults = Failing("DescribeTable", then=missing)
    waits: list[float] = []
    patience = Patience(10, 60, clock=lambda: sum(waits), sleep=waits.append)
    with pytest.raises(LeaseTableError, match="cannot be used: it is missing"):
        table.provision(LeaseTableOptions(), patience)
    assert waits == [10.0] * 6


def test_a_start_waits_longer_for_the_service_than_a_renewal(server: LocalServer) -> None:
    """Its retries are over after 3 seconds, and each call takes half of one."""
    table = table_of(server, next(_names))
    outage = Failing(None, Fault.error("ServiceUnavailable", status=503), times=10)
    server.kinesis.faults = outage
    assert table.provision(LeaseTableOptions())
    assert outage.met == 10


def test_recovery_that_is_not_available_yet_is_waited_for(
    server: LocalServer, dynamodb: Any
) -> None:
    table = table_of(server, next(_names))
    refusal = Fault.error("ContinuousBackupsUnavailableException")
    server.kinesis.faults = Failing("UpdateContinuousBackups", refusal, times=2)
    waits: list[float] = []
    patience = Patience(10, 60, clock=lambda: sum(waits), sleep=waits.append)
    assert table.provision(LeaseTableOptions(point_in_time_recovery=True), patience)
    assert waits == [10.0] * 2
    assert recovery(dynamodb, table.name) == "ENABLED"


def test_the_missing_permission_is_named(server: LocalServer) -> None:
    server.kinesis.faults = Failing("CreateTable", then=Fault.error("AccessDeniedException"))
    said = r"Not allowed to call CreateTable .*dynamodb:Creat"
    with pytest.raises(AccessDeniedError, match=said):
        table_of(server, next(_names)).provision(LeaseTableOptions())


def recovery(dynamodb: Any, name: str) -> str:
    answer = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    return str(answer["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"])
