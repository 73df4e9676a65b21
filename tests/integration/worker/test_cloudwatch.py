"""CloudWatch gets what was processed; nothing that it does harms processing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sparkinesis import CredentialSource, OptionError
from sparkinesis.local import Fault, LocalServer
from sparkinesis.metrics import CloudWatchMetrics
from sparkinesis.metrics.catalogue import RECORDS_PROCESSED
from sparkinesis.metrics.metric import AwsPlace, Measured
from sparkinesis.worker.reporting import cloudwatch
from tests import pace
from tests.failing import Failing
from tests.integration.worker.conftest import AT_ONCE
from tests.integration.worker.scene import Scene, checkpoint, told
from tests.journal import PATIENCE
from tests.streams import put


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True, cloudwatch=True, limits=AT_ONCE) as running:
        running.client("cloudwatch").list_metrics()  # the first call takes a second
        yield running


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, a call or a close may take longer than in production."""
    monkeypatch.setattr(cloudwatch, "CALL_TIMEOUT", PATIENCE)
    monkeypatch.setattr(cloudwatch, "CLOSE_WITHIN", 2 * PATIENCE)


@pytest.fixture(autouse=True)
def no_faults(server: LocalServer) -> Iterator[None]:
    server.kinesis.calls.clear()
    yield
    server.kinesis.faults = None


@pytest.fixture
def watched(server: LocalServer) -> Any:
    return server.client("cloudwatch")


def processed(
    watched: Any, namespace: str, name: str = "RecordsProcessed", **dimensions: str
) -> dict[str, float]:
    """The statistics of a metric since an hour, as CloudWatch tells them."""
    now = datetime.now(timezone.utc)
    answer = watched.get_metric_statistics(
        Namespace=namespace,
        MetricName=name,
        Dimensions=[
            {"Name": key, "Value": value}
            for key, value in {"Operation": "ProcessTask", **dimensions}.items()
        ],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=1),
        Period=7200,
        Statistics=["Sum", "SampleCount", "Minimum"],
    )
    points = answer["Datapoints"]
    return {
        "Sum": sum(point["Sum"] for point in points),
        "SampleCount": sum(point["SampleCount"] for point in points),
        "Minimum": min((point["Minimum"] for point in points), default=0),
    }


def metrics_of(watched: Any, namespace: str) -> dict[tuple[str, str], list[set[str]]]:
    """The dimensions besides the operation, by operation and name."""
    found: dict[tuple[str, str], list[set[str]]] = {}
    for metric in watched.list_metrics(Namespace=namespace)["Metrics"]:
        dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
        key = dimensions.pop("Operation"), metric["MetricName"]
        found.setdefault(key, []).append(set(dimensions))
    return found


DATA = [f"record {n}".encode() for n in range(400)]


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_cloudwatch_tells_what_was_processed(scene: Scene, watched: Any, retrieval: str) -> None:
    put(scene.kinesis, scene.stream, DATA)
    metrics = CloudWatchMetrics(level="detailed", shard_metrics=True, flush_every=1)
    worker = scene.start({"metrics": (metrics,)}, on_records=checkpoint)
    scene.journal.wait_for_data(*DATA)
    # Gauges are read while a worker runs.
    gauges = {("TakeLeases", "NumWorkers"), ("ApplicationTracker", "MillisBehindLatest")}
    pace.eventually(lambda: gauges <= metrics_of(watched, scene.stream).keys())
    worker.shutdown(PATIENCE)
    shards = {shard for shard, _ in scene.journal.calls("process_records")}
    assert len(shards) == 2
    for shard in shards:
        seen = scene.journal.data(shard)
        records = processed(watched, scene.stream, ShardId=shard)
        assert records["Sum"] == len(seen)
        size = processed(watched, scene.stream, "DataBytesProcessed", ShardId=shard)
        assert size["Sum"] == sum(map(len, seen))
        calls = [one for one in scene.journal.calls("process_records") if one[0] == shard]
        name = "RecordProcessor.processRecords.Time"
        assert processed(watched, scene.stream, name, ShardId=shard)["SampleCount"] == len(calls)
        success = processed(watched, scene.stream, "Success", ShardId=shard)
        assert (success["Sum"], success["Minimum"]) == (len(calls), 1)
    found = metrics_of(watched, scene.stream)
    assert found["RenewAllLeases", "CurrentLeases"] == [{"WorkerIdentifier"}]
    assert found["ProcessTask", "UpdateLease.Success"] == [{"ShardId"}, {"ShardId"}]
    assert found["ApplicationTracker", "MillisBehindLatest"] == [set()]
    if retrieval == "polling":
        assert ("ProcessTask", "KinesisDataFetcher.getRecords.Time") in found


FAULTS = {
    "throttled": Fault.error("ThrottlingException", "Rate exceeded"),
    "refused": Fault.error("AccessDeniedException", "no", status=403),
    "unavailable": Fault.error("ServiceUnavailable", "later", status=503),
    "failing": Fault.error("InternalServiceFault", "oops", status=500),
    "failing, yet done": Fault(code="InternalServiceFault", status=500, takes_effect=True),
    "hanging": Fault.delay(3_600_000),
    "reset": Fault.dropped(),
    "reset when done": Fault.dropped("after"),
}
KEPT = {"throttled", "refused", "unavailable"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_worker_processes_and_checkpoints_whatever_cloudwatch_does(
    scene: Scene, watched: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "hanging":
        monkeypatch.setattr(cloudwatch, "CALL_TIMEOUT", 0.5)
        monkeypatch.setattr(cloudwatch, "CLOSE_WITHIN", 2.0)
    scene.server.kinesis.faults = Failing("PutMetricData", then=FAULTS[name])
    put(scene.kinesis, scene.stream, DATA[:200])
    metrics = CloudWatchMetrics(flush_every=1)
    worker = scene.start({"metrics": (metrics,)}, on_records=checkpoint)
    scene.journal.wait_for_data(*DATA[:200])
    pace.eventually(lambda: told(scene.caplog, "does not take metrics"))
    put(scene.kinesis, scene.stream, DATA[200:])
    scene.journal.wait_for_data(*DATA)
    if name in KEPT:
        scene.server.kinesis.faults = None
    worker.shutdown(PATIENCE)
    assert worker.wait(0)
    leases = {lease.key: lease for lease in scene.table.scan().leases}
    last = {record.sequence_number for record in scene.journal.records()}
    assert {lease.checkpoint.sequence_number for lease in leases.values()} <= last
    assert sorted(scene.journal.data()) == sorted(DATA), "each record once"
    assert len(told(scene.caplog, "does not take metrics")) == 1
    total = processed(watched, scene.stream)["Sum"]
    if name in KEPT:
        assert total == len(DATA), "sent later"
    else:
        assert total <= len(DATA), "nothing counts twice"
        ends = ("were not published in the end", "did not take the last metrics")
        assert any(text in scene.caplog.text for text in ends)


def test_region_and_credentials_are_the_applications_unless_others_are_given(
    server: LocalServer, stream: str
) -> None:
    role = "arn:aws:iam::123456789012:role/metrics"
    place = AwsPlace("eu-west-1", server.endpoint_url, CredentialSource(role_arn=role))

    def keys(exporter: CloudWatchMetrics, place: AwsPlace) -> tuple[str, bool]:
        server.kinesis.calls.clear()
        metrics = pickle.loads(pickle.dumps(exporter)).open(Measured.worker(stream, "w", place))
        metrics.add(RECORDS_PROCESSED, (stream, "a"), 1)
        metrics.close()
        (call,) = server.kinesis.calls.select("PutMetricData")
        assert call.error is None
        return call.region, call.access_key == "test"

    assert keys(CloudWatchMetrics(), place) == ("eu-west-1", False)
    own = CloudWatchMetrics(region="us-west-2", credentials=CredentialSource())
    assert keys(own, place) == ("us-west-2", True)
    elsewhere = AwsPlace("eu-west-1", "http://127.0.0.1:1", place.credentials)
    own = CloudWatchMetrics(endpoint=server.endpoint_url)
    assert keys(own, elsewhere) == ("eu-west-1", False)


def test_without_a_region_the_rest_works_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    publisher = CloudWatchMetrics().publisher(Measured.worker("app", "w"))
    publisher.add(RECORDS_PROCESSED, ("s", "a"), 1)
    publisher.flush()
    publisher.flush()
    (record,) = caplog.records
    assert "CloudWatch does not take metrics: You must specify a region" in record.message
    assert publisher.held == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"level": "none"}, "level is 'none'; it must be 'summary' or 'detailed'"),
        ({"namespace": ""}, "namespace is ''"),
        ({"region": "Europe"}, "region is 'Europe'"),
        ({"endpoint": "localhost"}, "endpoint is 'localhost'"),
        ({"endpoint": "http://me:secret@host"}, "endpoint may not hold credentials"),
        ({"credentials": "me"}, "credentials must be CredentialSource"),
        ({"flush_every": 0.5}, "flush_every is 0.5"),
        ({"max_series": 0}, "max_series is 0"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        CloudWatchMetrics(**options)
    assert str(caught.value).startswith(text)
    assert "secret" not in str(caught.value)
