"""CloudWatch on the same endpoint, if asked for: metrics that are put can be read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import cbor2
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.local.wire.dynamodb import MOST_VALUES
from tests import pace
from tests.integration.local.conftest import once

NOW = datetime.now(timezone.utc)
START, END = NOW - timedelta(minutes=30), NOW + timedelta(minutes=5)
PROTOCOLS = ["query", "json", "smithy-rpc-v2-cbor"]
DIMENSIONS = [{"Name": "Operation", "Value": "ProcessTask"}]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    with LocalServer(cloudwatch=True) as running:
        yield running


@pytest.fixture
def cloudwatch(shared: LocalServer) -> Any:
    return once(shared, "cloudwatch")


def speaking(server: LocalServer, protocol: str) -> Any:
    """A boto3 client of CloudWatch that speaks one of the protocols in botocore's model."""
    session = Session()
    loader = session.get_component("data_loader")
    loader.load_service_model("cloudwatch", "service-2", None)["metadata"]["protocols"] = [protocol]
    client = session.create_client(
        "cloudwatch",
        region_name="us-east-1",
        endpoint_url=server.endpoint_url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=pace.seconds(10)),
    )
    assert client.meta.service_model.resolved_protocol == protocol
    return client


def datum(name: str, sum_: float, count: int = 1) -> dict[str, Any]:
    values = {"SampleCount": count, "Sum": sum_, "Minimum": 1, "Maximum": sum_}
    return {
        "MetricName": name,
        "Timestamp": NOW,
        "Dimensions": DIMENSIONS,
        "Unit": "Count",
        "StatisticValues": values,
    }


def test_a_metric_is_listed_once(cloudwatch: Any) -> None:
    dimensions = [{"Name": name, "Value": "1"} for name in ("Operation", "ShardId")]
    for _ in range(3):
        data = [{**datum("Records", 3), "Dimensions": dimensions}, datum("Records", 3)]
        cloudwatch.put_metric_data(Namespace="listed", MetricData=data)
    listed = cloudwatch.list_metrics(Namespace="listed")["Metrics"]
    assert sorted(len(one["Dimensions"]) for one in listed) == [len(DIMENSIONS), 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_of_sdks_is_taken(shared: LocalServer, protocol: str) -> None:
    cloudwatch = speaking(shared, protocol)
    # A large request is compressed.
    for data in ([datum("Records", 5, 2)], [datum("Records", 4)] * 50):
        cloudwatch.put_metric_data(Namespace=protocol, MetricData=data)
    (metric,) = cloudwatch.list_metrics(Namespace=protocol)["Metrics"]
    assert metric == {"Namespace": protocol, "MetricName": "Records", "Dimensions": DIMENSIONS}
    stat = {"Metric": metric, "Period": 7200, "Stat": "Sum"}
    times: dict[str, Any] = {"StartTime": START, "EndTime": END}
    query = {"Id": "q", "MetricStat": stat}
    (found,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **times)["MetricDataResults"]
    assert found["Values"] == [205.0], "the statistic sets are added up"
    names = ["Sum", "SampleCount", "Minimum", "Maximum"]
    (point,) = cloudwatch.get_metric_statistics(**metric, **times, Period=7200, Statistics=names)[
        "Datapoints"
    ]
    assert abs(point.pop("Timestamp") - NOW) < timedelta(seconds=1)
    assert type(point["Sum"]) is float
    assert point == {"Sum": 205, "SampleCount": 52, "Minimum": 1, "Maximum": 5, "Unit": "Count"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_refused_is_refused_in_the_callers_protocol(
    shared: LocalServer, protocol: str
) -> None:
    cloudwatch = speaking(shared, protocol)
    with pytest.raises(ClientError, match="Dashboard does not exist") as by_moto:
        cloudwatch.get_dashboard(DashboardName="none")
    assert refusal(by_moto) == ("ResourceNotFound", 404)
    with pytest.raises(ClientError, match="describe_anomaly_detectors") as not_there:
        cloudwatch.describe_anomaly_detectors()
    assert refusal(not_there) == ("NotImplemented", 501)
    with pytest.raises(ClientError, match="at most 1024 KiB") as too_much:
        cloudwatch.put_metric_data(Namespace="n", MetricData=[datum("x" * 255, 1)] * 5000)
    assert refusal(too_much) == ("RequestEntityTooLarge", 413)
    cloudwatch.meta.events.register("before-send", under_another_name)
    with pytest.raises(ClientError, match="no name of the local server") as rebound:
        cloudwatch.list_metrics()
    assert refusal(rebound) == ("RequestRefused", 403)


def under_another_name(request: Any, **_: Any) -> None:
    request.headers["Host"] = "elsewhere.example"


def refusal(caught: Any) -> tuple[str, int]:
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "code"),
    [
        ("PutMetricData", b"\xff", {}, "SerializationException"),
        (
            "PutMetricData",
            cbor2.dumps({"Namespace": cbor2.undefined}),
            {},
            "SerializationException",
        ),
        ("PutMetricData", b"{}", {"content-encoding": "gzip"}, "SerializationException"),
        ("PutMetricData", b"\x81" * 100_000, {}, "SerializationException"),
        ("PutMetricData", b"[" * 300, {"accept": "text/html"}, "SerializationException"),
        ("NoSuchThing", b"\xbf\xff", {}, "NotImplemented"),
        ("", b"\xbf\xff", {}, "UnknownOperationException"),
        ("../Kinesis_20131202/operation/ListStreams", b"\xa0", {}, "UnknownOperationException"),
        ("../../DynamoDB_20120810/operation/ListTables", b"\xa0", {}, "UnknownOperationException"),
    ],
)
def test_a_wrong_request_in_cbor_is_refused_in_cbor(
    shared: LocalServer, path: str, body: bytes, headers: dict[str, str], code: str
) -> None:
    answer = post_cbor(shared, path, body, headers)
    assert 400 <= answer.status < 600, answer.data
    assert answer.headers["smithy-protocol"] == "rpc-v2-cbor"
    assert answer.headers["content-type"] == "application/cbor"
    told = cbor2.loads(answer.data)
    assert told["__type"] == code, told
    assert told["message"]


def test_a_call_without_members_in_cbor_needs_no_body(shared: LocalServer) -> None:
    answer = post_cbor(shared, "ListMetrics", b"", {})
    assert answer.status == 200, answer.data
    assert list(cbor2.loads(answer.data)) == ["Metrics"]


def test_a_small_body_that_unfolds_to_a_large_one_is_refused(shared: LocalServer) -> None:
    body = gzip.compress(b"\0" * (64 << 20))
    answer = post_cbor(shared, "PutMetricData", body, {"content-encoding": "gzip"})
    assert answer.status == 413
    assert cbor2.loads(answer.data)["__type"] == "RequestEntityTooLarge"


def post_cbor(server: LocalServer, operation: str, body: bytes, headers: dict[str, str]) -> Any:
    head = {
        "smithy-protocol": "rpc-v2-cbor",
        "content-type": "application/cbor",
        "authorization": "Credential=local/20270101/us-east-1/monitoring/aws4_request",
        **headers,
    }
    url = f"{server.endpoint_url}/service/GraniteServiceVersion20100801/operation/{operation}"
    return urllib3.request(
        "POST", url, headers=head, body=body, retries=False, timeout=pace.seconds(60)
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_are_logged_and_fail_as_planned(shared: LocalServer, protocol: str) -> None:
    cloudwatch = speaking(shared, protocol)

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
    answer = urllib3.request("GET", shared.endpoint_url, timeout=pace.seconds(60))
    assert json.loads(answer.data)["services"] == ["kinesis", "dynamodb", "sts", "cloudwatch"]


def test_it_is_not_served_unless_asked_for() -> None:
    with LocalServer() as server:
        for protocol in PROTOCOLS:
            with pytest.raises(ClientError) as caught:
                speaking(server, protocol).list_metrics()
            assert caught.value.response["Error"]["Code"] == "UnknownOperationException"
            assert "--cloudwatch, or LocalServer with cloudwatch=True" in str(caught.value)
        assert server.moto_pid is None


def test_only_the_newest_values_are_kept() -> None:
    """In a process of its own, because moto is changed."""
    code = """
from moto.cloudwatch.models import cloudwatch_backends
from sparkinesis.local.wire import dynamodb

dynamodb.MOST_VALUES = 10
dynamodb.correct_cloudwatch()
backend = cloudwatch_backends["123456789012"]["us-east-1"]
for n in range(25):
    backend.put_metric_data("n", [{"MetricName": "m", "Value": n}])
print([datum.value for datum in backend.metric_data])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([float(n) for n in range(15, 25)])
    assert MOST_VALUES == 100_000
