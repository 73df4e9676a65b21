"""CloudWatch on the same endpoint, if asked for: metrics that are put can be read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.local.wire.moto_gaps import MOST_VALUES
from tests.integration.local.conftest import once

NOW = datetime.now(timezone.utc)
START, END = NOW - timedelta(minutes=30), NOW + timedelta(minutes=5)
DIMENSIONS = [{"Name": "Operation", "Value": "ProcessTask"}]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    with LocalServer(cloudwatch=True) as running:
        yield running


@pytest.fixture
def cloudwatch(shared: LocalServer) -> Any:
    return once(shared, "cloudwatch")


def datum(name: str, sum_: float, count: int = 1) -> dict[str, Any]:
    values = {"SampleCount": count, "Sum": sum_, "Minimum": 1, "Maximum": sum_}
    return {
        "MetricName": name,
        "Timestamp": NOW,
        "Dimensions": DIMENSIONS,
        "Unit": "Count",
        "StatisticValues": values,
    }


def sums(cloudwatch: Any, *namespaces: str) -> list[float]:
    """By GetMetricData, one call for each namespace."""
    found = []
    for namespace in namespaces:
        metric = {"Namespace": namespace, "MetricName": "Records", "Dimensions": DIMENSIONS}
        query = {"Id": "q", "MetricStat": {"Metric": metric, "Period": 7200, "Stat": "Sum"}}
        answer = cloudwatch.get_metric_data(MetricDataQueries=[query], StartTime=START, EndTime=END)
        found += answer["MetricDataResults"][0]["Values"]
    return found


def test_statistic_sets_are_added_up(cloudwatch: Any) -> None:
    for total in (5, 7):
        cloudwatch.put_metric_data(Namespace="one", MetricData=[datum("Records", total, 2)])
    (point,) = cloudwatch.get_metric_statistics(
        Namespace="one",
        MetricName="Records",
        Dimensions=DIMENSIONS,
        StartTime=START,
        EndTime=END,
        Period=7200,
        Statistics=["Sum", "SampleCount", "Minimum", "Maximum"],
    )["Datapoints"]
    del point["Timestamp"]
    assert point == {
        "Sum": 12,
        "SampleCount": 4,
        "Minimum": 1,
        "Maximum": 7,
        "Unit": "Count",
    }
    (metric,) = cloudwatch.list_metrics(Namespace="one")["Metrics"]
    assert metric == {"Namespace": "one", "MetricName": "Records", "Dimensions": DIMENSIONS}


def test_a_metric_is_listed_once(cloudwatch: Any) -> None:
    dimensions = [{"Name": name, "Value": "1"} for name in ("Operation", "ShardId")]
    for _ in range(3):
        data = [{**datum("Records", 3), "Dimensions": dimensions}, datum("Records", 3)]
        cloudwatch.put_metric_data(Namespace="listed", MetricData=data)
    listed = cloudwatch.list_metrics(Namespace="listed")["Metrics"]
    assert sorted(len(one["Dimensions"]) for one in listed) == [len(DIMENSIONS), 2]


def test_two_applications_are_kept_apart(cloudwatch: Any) -> None:
    cloudwatch.put_metric_data(Namespace="first", MetricData=[datum("Records", 3)])
    # A large request is compressed.
    cloudwatch.put_metric_data(Namespace="second", MetricData=[datum("Records", 4)] * 1000)
    assert sums(cloudwatch, "first", "second") == [3, 4000]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_query_protocol_is_taken(
    shared: LocalServer, cloudwatch: Any, is_compressed: bool
) -> None:
    """As clients send it that are older than this one."""
    namespace = f"query-{is_compressed}"
    body = urlencode(
        {
            "Action": "PutMetricData",
            "Version": "2010-08-01",
            "Namespace": namespace,
            "MetricData.member.1.MetricName": "Records",
            "MetricData.member.1.Timestamp": NOW.isoformat(),
            "MetricData.member.1.Dimensions.member.1.Name": "Operation",
            "MetricData.member.1.Dimensions.member.1.Value": "ProcessTask",
            "MetricData.member.1.Value": "6",
        }
    ).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    if is_compressed:
        body = gzip.compress(body)
        headers["Content-Encoding"] = "gzip"
    request = AWSRequest("POST", f"{shared.endpoint_url}/", headers=headers, data=body)
    SigV4Auth(Credentials("local", "local"), "monitoring", "us-east-1").add_auth(request)
    answer = urllib3.request("POST", request.url, headers=dict(request.headers), body=body)
    assert answer.status == 200, answer.data
    assert sums(cloudwatch, namespace) == [6]


def test_calls_are_logged_and_fail_as_planned(shared: LocalServer, cloudwatch: Any) -> None:
    def plan(call: Call) -> Fault | None:
        if call.operation == "PutMetricData":
            return Fault.error("ThrottlingException", "Rate exceeded")
        return None

    shared.kinesis.faults = plan
    try:
        with pytest.raises(ClientError, match="Rate exceeded") as caught:
            cloudwatch.put_metric_data(Namespace="fails", MetricData=[datum("Records", 1)])
    finally:
        shared.kinesis.faults = None
    assert caught.value.response["Error"]["Code"] == "ThrottlingException"
    call = list(shared.kinesis.calls.select("PutMetricData"))[-1]
    assert (call.error, call.region, call.stream) == ("ThrottlingException", "us-east-1", None)
    assert cloudwatch.list_metrics(Namespace="fails")["Metrics"] == []


def test_dynamodb_and_sts_are_served_beside_it(shared: LocalServer) -> None:
    assert once(shared, "dynamodb").list_tables()["TableNames"] == []
    assert once(shared, "sts").get_caller_identity()["Account"] == "123456789012"
    answer = urllib3.request("GET", shared.endpoint_url)
    assert json.loads(answer.data)["services"] == ["kinesis", "dynamodb", "sts", "cloudwatch"]


def test_it_is_not_served_unless_asked_for() -> None:
    with LocalServer() as server:
        with pytest.raises(ClientError) as caught:
            once(server, "cloudwatch").list_metrics()
        assert caught.value.response["Error"]["Code"] == "UnknownOperationException"
        assert "--cloudwatch, or LocalServer with cloudwatch=True" in str(caught.value)
        assert server.moto_pid is None


def test_only_the_newest_values_are_kept() -> None:
    """In a process of its own, because moto is changed."""
    code = """
from moto.cloudwatch.models import cloudwatch_backends
from sparkinesis.local.wire import moto_gaps

moto_gaps.MOST_VALUES = 10
moto_gaps.install_metrics()
backend = cloudwatch_backends["123456789012"]["us-east-1"]
for n in range(25):
    backend.put_metric_data("n", [{"MetricName": "m", "Value": n}])
print([datum.value for datum in backend.metric_data])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([float(n) for n in range(15, 25)])
    assert MOST_VALUES == 100_000
