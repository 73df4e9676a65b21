"""`sparkinesis doctor` on a real server, and with each real fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkinesis import aggregate
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.monitor.doctor.examination import credentials, region
from sparkinesis.monitor.doctor.judge import State
from sparkinesis.public import __version__
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.shard import MAX_HASH_KEY
from tests.answering import answering
from tests.command import Result, call, objects, place_of, run
from tests.integration.worker.conftest import AT_ONCE
from tests.integration.worker.scene import Scene, create_leases
from tests.kcl import create_table, put_lease
from tests.streams import arn_of, put, put_at, records_of, split

SHARD = "shardId-000000000000"


@pytest.fixture(scope="module")
def server(moto: LocalServer) -> LocalServer:
    return moto


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM is started for its version: that takes longer than all other checks together."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


class Report:
    """What one run of the command says."""

    def __init__(self, result: Result) -> None:
        self.exit_code = result.returncode
        self.findings = objects(result, self.exit_code)

    def of(self, check: str, state: str) -> list[str]:
        """Return what was found, with what to mend."""
        return [
            f"{one['what']} {one['mend']}"
            for one in self.findings
            if (one["check"], one["state"]) == (check, state)
        ]

    def problems(self) -> dict[str, str]:
        """Return the only problem of each check."""
        found = [one for one in self.findings if one["state"] == "problem"]
        texts = {one["check"]: f"{one['what']} {one['mend']}" for one in found}
        assert len(texts) == len(found), found
        return texts


Doctor = Callable[..., Report]


def examine(
    endpoint: str, app: str, *options: str, stream: str, region: str = "us-east-1"
) -> Report:
    arguments = ["doctor", app, "--stream", stream, "--json", "--region", region]
    result = call(*arguments, "--endpoint", endpoint, *options)
    assert result.stderr == ""
    return Report(result)


@pytest.fixture
def doctor(server: LocalServer, stream: str) -> Doctor:
    """Examines an application of the stream's name."""

    def run(*options: str, **given: str) -> Report:
        return examine(server.endpoint_url, stream, *options, **{"stream": stream, **given})

    return run


def test_a_healthy_application_is_well(scene: Scene, doctor: Doctor) -> None:
    put(scene.kinesis, scene.stream, [b"a"], key="k")
    scene.start()
    scene.journal.wait_for_data(b"a")
    report = doctor("--writes")
    assert report.problems() == {}
    assert report.exit_code == 0
    checks = {one["check"] for one in report.findings}
    assert f"sparkinesis {__version__}, Python 3." in report.of("versions", "ok")[0]
    wanted = {"versions", "Spark", "region", "credentials", "Kinesis", "DynamoDB", "clock"}
    assert (
        wanted | {f"stream {scene.stream}", "table", "permissions", "capacity", "limits"} <= checks
    )
    assert "PutRecord may be called " in report.of(f"stream {scene.stream}", "ok")
    (permitted,) = report.of("permissions", "ok")
    assert permitted == "GetItem, DeleteItem, PutItem, UpdateItem may be called "
    assert "2 leases, 2 not finished" in report.of("table", "ok")[0]


def test_nothing_is_written_and_no_record_is_put(
    kinesis: Any, dynamodb: Any, stream: str, doctor: Doctor
) -> None:
    create_table(dynamodb, stream)
    put_lease(dynamodb, stream, SHARD, "TRIM_HORIZON")
    before = dynamodb.scan(TableName=stream)["Items"]
    assert doctor("--writes", "--efo").exit_code == 0
    assert dynamodb.scan(TableName=stream)["Items"] == before
    assert records_of(kinesis, stream, SHARD) == []
    assert kinesis.list_stream_consumers(StreamARN=arn_of(kinesis, stream))["Consumers"] == []


def test_several_streams_are_examined_each_and_their_account_once(
    kinesis: Any, dynamodb: Any, streams: list[str], server: LocalServer
) -> None:
    create_table(dynamodb, streams[0])
    others = ["--stream", arn_of(kinesis, streams[1]), "--stream", "no-such-stream", "--writes"]
    report = examine(server.endpoint_url, streams[0], *others, stream=streams[0])
    assert list(report.problems()) == ["stream no-such-stream"]
    for stream in streams[:2]:
        assert len(report.of(f"stream {stream}", "ok")) == 3
    for check in ("limits", "Kinesis", "DynamoDB", "clock"):
        assert len(report.of(check, "ok")) == 1


def test_each_stream_is_compared_with_its_own_leases(scene: Scene, server: LocalServer) -> None:
    """Streams have shards of the same ids."""
    one, other = scene.streams[:2]
    split(scene.kinesis, other)
    app = scene.application(stream=None, streams=[one, other], initial_position="latest")
    assert [lease.shard_id[-1] for lease in create_leases(app).values()] == ["0", "1", "2"]
    report = examine(server.endpoint_url, scene.stream, "--stream", other, stream=one)
    assert report.problems() == {}


def test_the_wrong_region_is_told(doctor: Doctor, stream: str) -> None:
    report = doctor(region="eu-west-1")
    assert report.exit_code == 1
    assert "There is no stream" in report.problems()[f"stream {stream}"]
    assert "region" in report.problems()[f"stream {stream}"]


def test_a_missing_table_is_told_unless_the_application_is_new(doctor: Doctor) -> None:
    report = doctor()
    assert report.exit_code == 1
    assert list(report.problems()) == ["table"]
    assert "there is no lease table" in report.problems()["table"].lower()
    (finding,) = (one for one in report.findings if one["check"] == "table")
    assert finding["mend"].startswith("Either it was deleted, or the application has not run yet")
    new = doctor("--new")
    assert new.exit_code == 0
    assert "the first worker creates it" in new.of("table", "ok")[0]


def test_a_table_that_is_no_lease_table_is_told(dynamodb: Any, stream: str, doctor: Doctor) -> None:
    create_table(dynamodb, stream, "id", "N")
    found = doctor().problems()
    assert "is no lease table: its key is id (HASH N)" in found["table"]
    assert list(found) == ["table"], "its rows are not looked at"


@pytest.mark.parametrize(
    ("shard", "checkpoint", "words"),
    [
        (SHARD, "not a position", [SHARD, "Repair the row"]),
        ("shardId-000000000077", "TRIM_HORIZON", ["reads another stream"]),
    ],
)
def test_a_row_that_cannot_be_read_or_is_of_another_stream_is_told(
    dynamodb: Any, stream: str, doctor: Doctor, *, shard: str, checkpoint: str, words: list[str]
) -> None:
    create_table(dynamodb, stream)
    put_lease(dynamodb, stream, shard, checkpoint)
    found = doctor().problems()["leases"]
    assert [word for word in words if word not in found] == []


def test_a_table_of_too_little_capacity_is_told(dynamodb: Any, stream: str, doctor: Doctor) -> None:
    units = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    create_table(dynamodb, stream, ProvisionedThroughput=units)
    for shard in range(4):
        put_lease(dynamodb, stream, f"shardId-{shard:012}", "TRIM_HORIZON")
    assert "1 write units" in doctor().problems()["capacity"]


def test_a_closed_port_is_told_and_what_rests_on_it_is_left_out(
    server: LocalServer, stream: str
) -> None:
    with LocalServer(port=0) as other:
        gone = other.endpoint_url
    report = examine(gone, stream, stream=stream)
    assert report.exit_code == 1
    assert list(report.problems()) == ["Kinesis", "DynamoDB"]
    assert "nothing answers" in report.problems()["Kinesis"]
    assert "firewalls" in report.problems()["Kinesis"]
    own = examine(server.endpoint_url, stream, "--dynamodb-endpoint", gone, stream=stream)
    assert list(own.problems()) == ["DynamoDB"]


@contextmanager
def serving(**given: Any) -> Iterator[LocalServer]:
    """A server of its own with the stream and the lease table of "app"."""
    with LocalServer(lease_tables=LeaseTables(), limits=AT_ONCE, **given) as own:
        own.client("kinesis").create_stream(StreamName="app", ShardCount=1)
        create_table(own.client("dynamodb"), "app")
        yield own


def test_a_clock_that_is_wrong_is_told() -> None:
    with serving(clock=lambda: time.time_ns() // 1_000_000 - 600_000) as server:
        found = examine(server.endpoint_url, "app", stream="app").problems()
    assert list(found) == ["clock"]
    assert "s ahead of the service's" in found["clock"]


DENIED = "AccessDeniedException"


@pytest.fixture(scope="module")
def refused() -> dict[str, str]:
    """The operations that `refusing` refuses, with the codes of its errors."""
    return {}


@pytest.fixture(scope="module")
def refusing_server(refused: dict[str, str]) -> Iterator[LocalServer]:
    def plan(call: Call) -> Fault | None:
        code = refused.get(call.operation, refused.get("*"))
        return Fault.error(code, "not for you") if code else None

    with serving(faults=plan) as server:
        yield server


@pytest.fixture
def refusing(refusing_server: LocalServer, refused: dict[str, str]) -> Iterator[Doctor]:
    """Examines "app" on a server that refuses some operations."""
    url = refusing_server.endpoint_url
    yield lambda *options: examine(url, "app", *options, stream="app")
    refused.clear()


@pytest.mark.parametrize(
    ("operation", "check"),
    [
        ("DescribeStreamSummary", "stream s"),
        ("ListShards", "stream s"),
        ("GetShardIterator", "stream s"),
        ("GetRecords", "stream s"),
        ("PutRecord", "stream s"),
        ("DescribeStreamConsumer", "consumer"),
        ("ListStreamConsumers", "consumer"),
        ("DescribeTable", "table"),
        ("Scan", "table"),
        ("GetItem", "permissions"),
        ("PutItem", "permissions"),
        ("UpdateItem", "permissions"),
        ("DeleteItem", "permissions"),
    ],
)
def test_a_permission_that_is_missing_is_told(
    operation: str, check: str, refusing: Doctor, refused: dict[str, str]
) -> None:
    refused[operation] = DENIED
    report = refusing("--efo", "--writes")
    assert report.exit_code == 1
    found = report.problems()
    assert list(found) == [check.replace("stream s", "stream app")]
    (text,) = found.values()
    assert operation in text
    assert "not for you" in text


def test_a_subscription_that_is_refused_is_told(
    refusing: Doctor, refused: dict[str, str], refusing_server: LocalServer
) -> None:
    kinesis = refusing_server.client("kinesis")
    kinesis.register_stream_consumer(StreamARN=arn_of(kinesis, "app"), ConsumerName="c")
    well = refusing("--efo", "--consumer", "c")
    assert "SubscribeToShard may be called " in well.of("consumer", "ok")
    refused["SubscribeToShard"] = DENIED
    assert "SubscribeToShard" in refusing("--efo", "--consumer", "c").problems()["consumer"]
    polling = refusing("--consumer", "c")
    assert polling.exit_code == 0
    assert "SubscribeToShard" in polling.of("consumer", "note")[0]


def test_batches_that_are_refused_are_no_problem(refusing: Doctor, refused: dict[str, str]) -> None:
    refused["BatchExecuteStatement"] = DENIED
    report = refusing()
    assert report.exit_code == 0
    assert "PartiQLUpdate" in report.of("permissions", "note")[0]


def test_credentials_that_have_expired_are_told(refusing: Doctor, refused: dict[str, str]) -> None:
    refused["*"] = "ExpiredTokenException"
    found = refusing().problems()
    assert set(found) == {"stream app", "table"}
    assert all("The credentials have expired" in text for text in found.values())


def test_without_proof_that_the_server_knows_dry_runs_no_record_is_tried(
    refusing: Doctor, refused: dict[str, str]
) -> None:
    refused["GetRecords"] = "ProvisionedThroughputExceededException"
    refused["PutRecord"] = DENIED
    report = refusing("--writes")
    assert report.exit_code == 0
    assert "PutRecord was not checked" in report.of("stream app", "note")[0]


def test_a_profile_that_is_missing_is_told(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    found = doctor("--profile", "nobody").problems()
    assert list(found) == ["credentials"]
    assert "'nobody'" in found["credentials"]


def test_people_get_a_list_and_what_to_mend(server: LocalServer, stream: str) -> None:
    done = run("doctor", "no-such-app", "--stream", stream, *place_of(server))
    assert (done.returncode, done.stderr) == (1, "")
    lines, mend = done.stdout.split("\nTo mend:\n")
    assert lines.splitlines()[0].split() == ["check", "state", "finding"]
    places = {line.index("  ok  ") for line in lines.splitlines() if "  ok  " in line}
    assert len(places) == 1, "the columns are aligned"
    assert "\n- table: Either it was deleted, or" in f"\n{mend}"


ON_AWS = StreamAddress("s", None, "us-east-1")
EXPIRED = (
    b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
    b"<Code>ExpiredToken</Code><Message>The security token included in the request is expired"
    b"</Message></Error></ErrorResponse>"
)


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor an instance have credentials or a region."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def test_sts_says_whose_they_are(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint_url)
    (found,) = credentials(ON_AWS)
    assert found.state is State.OK
    assert found.what.startswith("found by env: arn:aws:sts::")


def test_credentials_that_sts_refuses_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda headers, body: (403, EXPIRED), "text/xml") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        (found,) = credentials(ON_AWS)
    assert found.state is State.PROBLEM
    assert "ExpiredToken" in found.what
    assert "Renew them" in found.mend


def test_an_sts_that_does_not_answer_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda headers, body: (403, EXPIRED), "text/xml") as gone:
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", gone)
    (found,) = credentials(ON_AWS)
    assert found.state is State.NOTE
    assert "STS does not answer" in found.what


@pytest.mark.usefixtures("no_files")
def test_no_credentials_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (found,) = credentials(ON_AWS)
    assert found.state is State.PROBLEM
    assert "AWS_ACCESS_KEY_ID" in found.mend
    (local,) = credentials(StreamAddress("s", None, "us-east-1", "http://127.0.0.1:4567"))
    assert local.state is State.OK
    assert "none are needed" in local.what


@pytest.mark.usefixtures("no_files")
def test_a_region_is_told_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert region(ON_AWS).what == "us-east-1, as given by --region"
    nowhere = StreamAddress("s", None, None)
    assert region(nowhere).state is State.PROBLEM
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert region(nowhere).what == "eu-west-1, from the environment variable AWS_REGION"


def test_a_sample_of_records_shows_what_their_producers_do(
    kinesis: Any, stream: str, doctor: Doctor
) -> None:
    check = f"records {stream}"
    (empty,) = doctor("--new", "--records", "10").of(check, "ok")
    assert empty == "read 0 records of 2 shards, of the last hour "
    for key, hash_key in (("x", 0), ("y", MAX_HASH_KEY)):
        users = [("a", None, b"%s%d" % (key.encode(), n)) for n in range(60)]
        put_at(kinesis, stream, next(iter(aggregate(users))).data, hash_key, key)
    put(kinesis, stream, [b"1", b"1"], key="k")
    report = doctor("--new", "--records", "10")
    assert (report.exit_code, report.problems()) == (0, {})
    (read,) = report.of(check, "ok")
    assert read == (
        "read 4 records of 2 shards, of the last hour; 2 aggregates of 120 user records "
    )
    elsewhere, repeated, one_key = report.of(check, "note")
    assert elsewhere.startswith("aggregates with keys of other shards: 1, of 60 user records")
    assert repeated.startswith("user records with the key and the data of an earlier one: 1.")
    assert one_key.startswith("all user records in aggregates have the key 'a'")
    put(kinesis, stream, [b"%d" % n for n in range(40)])
    (bounded,) = doctor("--new", "--records", "5").of(check, "ok")
    assert bounded.startswith("read 5 records of 2 shards")
    assert not doctor("--new").of(check, "ok"), "nothing is read unless it is asked for"


def test_records_that_may_not_be_read_are_told_as_such(
    refusing: Doctor, refused: dict[str, str]
) -> None:
    refused["GetRecords"] = DENIED
    problems = refusing("--records", "5").problems()
    assert set(problems) == {"stream app", "records app"}
    assert "GetRecords" in problems["records app"]


def test_a_stream_that_is_not_there_has_no_records_to_look_at(
    server: LocalServer, stream: str
) -> None:
    report = examine(server.endpoint_url, stream, "--records", "5", stream="no-such-stream")
    assert next(iter(report.problems())) == "stream no-such-stream"
    assert not any(one["check"].startswith("records") for one in report.findings)
