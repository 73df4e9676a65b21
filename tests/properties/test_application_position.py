"""``initialPosition=application:NAME`` goes on exactly behind a KCL application's checkpoints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError, DataLossError, LeaseTableError
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.source.planning.batch_start import application_start
from sparkinesis.source.planning.kept import ListedShards
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.source.stream_report import read_reports
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import Query, late, query_of
from tests.failing import Failing
from tests.kcl import COORDINATION, create_table, put_lease, put_rows
from tests.planners import planner_options
from tests.properties.conftest import START_MS
from tests.streams import identifier, put

HOUR = 3_600_000
SHARD = "shardId-000000000000"

_numbers = itertools.count()


@dataclass
class Services:
    server: LocalServer
    clock: ManualClock
    kinesis: Any
    dynamodb: Any


@pytest.fixture(scope="module")
def shared() -> Iterator[Services]:
    """DynamoDB takes a second to start, so these tests share one; streams are their own."""
    clock = ManualClock(START_MS)
    with LocalServer(limits=False, clock=clock, dynamodb=True) as server:
        yield Services(server, clock, server.client("kinesis"), server.client("dynamodb"))


class Application:
    """A stream of one shard, and the lease table of a KCL application that reads it."""

    def __init__(self, services: Services, shards: int = 1) -> None:
        number = next(_numbers)
        self.server, self.clock = services.server, services.clock
        self.kinesis, self.dynamodb = services.kinesis, services.dynamodb
        self.stream, self.table = f"stream-{number}", f"App.{number}"
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=shards)
        create_table(self.dynamodb, self.table)

    def put(self, data: bytes) -> str:
        """Returns the sequence number."""
        answer = self.kinesis.put_record(StreamName=self.stream, Data=data, PartitionKey="k")
        return str(answer["SequenceNumber"])

    def put_aggregate(self, *datas: bytes) -> str:
        (blob,) = aggregate([("k", None, data) for data in datas])
        return self.put(blob.data)

    @property
    def identifier(self) -> str:
        """The stream as it is now, as the keys of the leases of several streams name it."""
        return identifier(self.kinesis, self.stream)

    def make_anew(self) -> None:
        """Delete the stream, and create another one of its name."""
        self.kinesis.delete_stream(StreamName=self.stream)
        self.clock.advance(60_000)
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=1)

    def checkpoint(self, checkpoint: str, sub: int = 0, key: str = SHARD) -> None:
        put_lease(self.dynamodb, self.table, key, checkpoint, sub)

    def query(self, **options: str) -> Query:
        given = {"initialPosition": f"application:{self.table}", **options}
        return query_of(self.server, given.pop("streamName", self.stream), **given)


@pytest.fixture
def app(shared: Services) -> Application:
    return Application(shared)


def begun(running: Query) -> Query:
    """The query behind its first batch, which has no rows and makes its place durable."""
    first = running.batch()
    assert first.rows == []
    return running


def losses(running: Query, app: Application) -> int:
    """The losses that the query has accepted, as its progress tells them."""
    reports = read_reports(json.loads(json.dumps(running.reader.reportLatestOffset())))
    assert reports is not None
    return reports[app.stream].data_losses


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("done", range(4))
def test_the_first_rows_are_those_behind_the_checkpoint_inside_an_aggregate(
    app: Application, done: int, restarts: bool
) -> None:
    app.put(b"before")
    app.checkpoint(app.put_aggregate(b"0", b"1", b"2", b"3"), done)
    put_rows(app.dynamodb, app.table, COORDINATION)
    app.put_aggregate(b"4", b"5")
    app.put(b"after")
    running = begun(app.query())
    if restarts:
        running.restart()
    batch = running.batch()
    left = [b"0", b"1", b"2", b"3"][done + 1 :]
    assert batch.datas == [*left, b"4", b"5", b"after"]
    subs = [row["subSequenceNumber"] for row in batch.rows]
    assert subs == [*range(done + 1, 4), 0, 1, 0]
    assert running.read(batch.start, batch.end).rows == batch.rows
    assert list(running.drain()) == []


@pytest.mark.parametrize("done", range(4))
def test_the_rest_of_the_very_last_record_is_a_batch_of_its_own(
    app: Application, done: int
) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1", b"2", b"3"), done)
    running = begun(app.query())
    if done == 3:
        assert running.rest() == []
    else:
        start, end = running.plan()
        assert running.read(start, end).datas == [b"%d" % n for n in range(done + 1, 4)]
        # The driver is asked again for the same start when a batch was not committed.
        assert running.plan() == (start, end)
        assert len(list(running.drain())) == 1
    app.put(b"new")
    assert running.rest() == [b"new"]


def test_a_record_that_is_not_aggregated_is_done(app: Application) -> None:
    app.checkpoint(app.put(b"a"))
    assert begun(app.query()).rest() == []
    app.put(b"b")
    assert begun(app.query()).rest() == [b"b"]


@pytest.mark.parametrize(("done", "count"), [(2, 1), (3, 0)])
def test_records_as_stored_come_again_when_not_all_of_them_is_done(
    app: Application, done: int, count: int
) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1", b"2", b"3"), done)
    rows = begun(app.query(deaggregate="false")).rest()
    assert [data[:4] for data in rows] == [b"\xf3\x89\x9a\xc2"] * count


def test_the_first_offset_holds_what_the_application_had_done_then(app: Application) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1"))
    last = app.put(b"2")
    running = begun(app.query())
    app.checkpoint(last)  # the application goes on: too late
    running.restart()
    assert running.rest() == [b"1", b"2"]


def test_a_table_of_many_pages_is_read_to_its_end(app: Application) -> None:
    """A Scan gives 1 MB at a time; KCL applications of many streams have larger tables."""
    app.put(b"a")
    ballast = {"ballast": {"S": "x" * 350_000}}
    keys = [f"123456789012:s{n}:1:{SHARD}" for n in range(8)]
    for key in [*keys, f"{app.identifier}:{SHARD}"]:
        put_lease(app.dynamodb, app.table, key, "TRIM_HORIZON", attributes=ballast)
    app.server.kinesis.calls.clear()
    assert begun(app.query()).rest() == [b"a"]
    assert app.server.kinesis.calls.count("Scan", stream=app.table) >= 3


def test_each_stream_begins_at_its_own_checkpoint_though_their_shards_have_one_id(
    shared: Services,
) -> None:
    apps = [Application(shared) for _ in range(3)]
    table = apps[0].table
    for number, app in enumerate(apps):
        record = app.put_aggregate(*(f"{app.stream} {n}".encode() for n in range(4)))
        put_lease(shared.dynamodb, table, f"{app.identifier}:{SHARD}", record, number)
    names = ",".join(app.stream for app in apps)
    running = begun(apps[0].query(streamName=names))
    rows = [(row["stream"], row["data"]) for batch in running.drain() for row in batch.rows]
    assert sorted(rows) == sorted(
        (app.stream, f"{app.stream} {n}".encode())
        for number, app in enumerate(apps)
        for n in range(number + 1, 4)
    )


@pytest.mark.parametrize("by", ["streamName", "streamARN"])
def test_a_stream_of_that_name_in_another_account_is_another_stream(
    app: Application, by: str
) -> None:
    last = app.put(b"done")
    app.put(b"left")
    app.checkpoint(last, key=f"{app.identifier}:{SHARD}")
    foreign = app.identifier.replace("123456789012", "999999999999")
    app.checkpoint("TRIM_HORIZON", key=f"{foreign}:{SHARD}")
    arn = f"arn:aws:kinesis:us-east-1:123456789012:stream/{app.stream}"
    place = {"endpoint": app.server.endpoint_url, "region": "us-east-1"}
    name = {"streamName": app.stream, "streamARN": arn}[by]
    running = Query(**{by: name}, **place, initialPosition=f"application:{app.table}")
    assert begun(running).rest() == [b"left"]


def test_leases_of_the_stream_as_it_is_now_count_whatever_other_epochs_the_table_holds(
    app: Application,
) -> None:
    old = app.put(b"of the deleted stream")
    former = app.identifier
    app.make_anew()
    last = app.put(b"done")
    app.put(b"left")
    app.checkpoint(last, key=f"{app.identifier}:{SHARD}")
    app.checkpoint(old, key=f"{former}:{SHARD}")
    name, _, epoch = app.identifier.rpartition(":")
    later = f"{name}:{int(epoch) + 3600}"
    app.checkpoint("TRIM_HORIZON", key=f"{later}:{SHARD}")
    app.checkpoint("TRIM_HORIZON", key="shardId-000000000009")  # of a stream that it does not name
    assert begun(app.query()).rest() == [b"left"]


def test_leases_of_a_deleted_stream_are_not_taken_for_the_present_one(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """Its shard has the same id, and the checkpoint would skip what the present stream holds."""
    app.put(b"of the deleted stream")
    former = app.identifier
    app.checkpoint("9" * 56, key=f"{former}:{SHARD}")
    app.make_anew()
    app.put(b"first")
    with pytest.raises(DataLossError) as caught:
        app.query().plan()
    text = str(caught.value)
    assert f"holds leases of {former}, created at" in text
    assert f"({app.identifier})" in text
    assert "was deleted and made anew, and the application has no checkpoint in it" in text
    assert f"that the application had not processed (of {SHARD}) are lost" in text
    assert "Set the option failOnDataLoss to false to begin with the oldest record" in text
    running = begun(app.query(failOnDataLoss="false"))
    assert losses(running, app) == 1
    running.restart()
    assert running.rest() == [b"first"]
    assert "The query begins with the oldest record of the stream." in caplog.text


def test_a_deleted_stream_that_was_finished_is_no_loss(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    app.checkpoint("SHARD_END", key=f"{app.identifier}:{SHARD}")
    app.make_anew()
    app.put(b"first")
    running = begun(app.query())
    assert running.rest() == [b"first"]
    assert losses(running, app) == 0
    assert "was deleted and made anew" in caplog.text
    assert "are lost" not in caplog.text


def test_leases_of_a_later_stream_are_those_of_another_region(app: Application) -> None:
    name, _, epoch = app.identifier.rpartition(":")
    later = f"{name}:{int(epoch) + 3600}"
    app.checkpoint("TRIM_HORIZON", key=f"{later}:{SHARD}")
    with pytest.raises(LeaseTableError) as caught:
        app.query().plan()
    assert f"holds leases of stream {later}, which was created at" in str(caught.value)
    assert "in another region. Check the option region" in str(caught.value)


def test_one_stream_made_anew_does_not_move_the_others_of_a_query(shared: Services) -> None:
    one, two = Application(shared), Application(shared)
    put_lease(one.dynamodb, one.table, f"{one.identifier}:{SHARD}", one.put(b"done"))
    one.put(b"left")
    put_lease(one.dynamodb, one.table, f"{two.identifier}:{SHARD}", two.put(b"old"))
    two.make_anew()
    two.put(b"new")
    running = begun(one.query(streamName=f"{one.stream},{two.stream}", failOnDataLoss="false"))
    assert sorted(running.rest()) == [b"left", b"new"]


def test_a_table_that_names_no_stream_is_not_for_a_query_of_several(shared: Services) -> None:
    """Or the shards of each would begin where those of one of them stood."""
    one, two = Application(shared), Application(shared)
    one.checkpoint(one.put(b"done"))
    with pytest.raises(LeaseTableError, match=r"reads one stream.*union them"):
        one.query(streamName=f"{one.stream},{two.stream}").plan()


def test_a_table_of_one_stream_costs_no_call_for_its_creation_time(app: Application) -> None:
    app.checkpoint(app.put(b"a"))
    app.server.kinesis.calls.clear()
    begun(app.query())
    assert app.server.kinesis.calls.count("DescribeStreamSummary") == 0


def put_marked(app: Application, checkpoint: str, stream: str, shard: str = SHARD) -> None:
    """A row of an application of one stream, which names that."""
    found = app.kinesis.describe_stream_summary(StreamName=app.stream)["StreamDescriptionSummary"]
    made_ms = round(found["StreamCreationTimestamp"].timestamp() * 1000)
    mark = f"us-east-1:{found['StreamARN'].split(':')[4]}:{stream}:{made_ms}"
    named = {"streamMark": {"S": mark}}
    put_lease(app.dynamodb, app.table, shard, checkpoint, attributes=named)


def test_a_row_of_one_stream_that_names_it_is_believed_for_that_stream_only(
    app: Application,
) -> None:
    """L8. Java's rows beside it belong to the same stream."""
    put_marked(app, app.put(b"done"), app.stream)
    app.put(b"left")
    assert begun(app.query()).rest() == [b"left"]
    app.make_anew()
    app.put(b"of the new one")
    with pytest.raises(DataLossError, match="was deleted and made anew"):
        app.query().plan()
    put_marked(app, "TRIM_HORIZON", "another")
    app.checkpoint("TRIM_HORIZON", key="shardId-000000000001")
    with pytest.raises(LeaseTableError, match=f"no lease of .*{app.stream}.*, only of 'another'"):
        app.query().plan()


def test_latest_and_trim_horizon_mean_what_they_mean_to_a_kcl(shared: Services) -> None:
    app = Application(shared, shards=2)
    put(app.kinesis, app.stream, [b"%d" % n for n in range(20)])
    rows = [
        row for batch in app.query(initialPosition="trim_horizon").drain() for row in batch.rows
    ]
    app.clock.advance(2000)
    app.checkpoint("LATEST")
    app.checkpoint("TRIM_HORIZON", key="shardId-000000000001")
    running = begun(app.query())
    of_second = [row["data"] for row in rows if row["shardId"] != SHARD]
    assert 0 < len(of_second) < 20
    assert running.rest() == of_second
    app.clock.advance(2000)
    put(app.kinesis, app.stream, [b"%d" % n for n in range(20, 40)])
    assert len(running.rest()) == 20


def test_a_checkpoint_that_retention_has_trimmed_is_a_loss(app: Application) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1"))
    app.clock.advance(25 * HOUR)
    app.put(b"2")
    running = begun(app.query())
    with pytest.raises(DataLossError, match=f"in shard {SHARD}"):
        running.plan()
    running.restart(failOnDataLoss="false")
    assert running.rest() == [b"2"]


def test_silence_after_taking_over_is_no_loss(app: Application) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1"), 1)
    running = begun(app.query())
    for _ in range(40):
        app.clock.advance(HOUR)
        running.restart()
        assert running.rest() == []
    app.put(b"2")
    running.restart()
    assert running.rest() == [b"2"]


def test_a_missing_table_is_explained(app: Application) -> None:
    with pytest.raises(LeaseTableError) as caught:
        app.query(initialPosition="application:Misspelt").plan()
    text = str(caught.value)
    assert "There is no lease table 'Misspelt' in us-east-1" in text
    assert "option initialPosition" in text
    assert "account" in text


@pytest.mark.parametrize("brief", [True, False])
def test_a_busy_table_is_asked_again_as_long_as_a_listing_of_shards_is(
    app: Application, brief: bool
) -> None:
    app.checkpoint(app.put(b"done"))
    waits: list[float] = []
    retry = Backoff(sleep=waits.append, uniform=lambda _, most: most)
    endpoint, region = app.server.endpoint_url, "us-east-1"
    client = StreamClient(StreamAddress(app.stream, None, region, endpoint))
    options = planner_options(app.stream, endpoint=endpoint, region=region)
    tools = StreamTools(client, options)
    app.server.kinesis.faults = Failing("Scan", Fault.error("ThrottlingException"))
    try:
        listing = ListedShards(tools, retry if brief else None)
        start, _ = application_start(tools, listing, app.table)
    finally:
        app.server.kinesis.faults = None
    assert start.keys() == {SHARD}
    assert waits == [0.1] * brief


def test_an_empty_table_is_explained(app: Application) -> None:
    put_rows(app.dynamodb, app.table, COORDINATION)
    with pytest.raises(LeaseTableError, match=f"'{app.table}' in us-east-1 .* holds no leases"):
        app.query().plan()


def test_a_refusal_names_the_one_permission_that_is_needed(app: Application) -> None:
    app.server.kinesis.faults = Failing("Scan", then=Fault.error("AccessDeniedException"))
    try:
        with pytest.raises(AccessDeniedError, match="dynamodb:Scan"):
            app.query().plan()
    finally:
        app.server.kinesis.faults = None


def test_the_rest_of_an_aggregate_is_skipped_when_it_is_older_than_wanted(app: Application) -> None:
    app.checkpoint(app.put_aggregate(b"0", b"1"), 0)
    app.clock.advance(HOUR)
    app.put(b"new")
    assert begun(app.query(skipOlderThan="2 minutes")).rest() == [b"new"]


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": "100"}])
def test_p10_shards_that_an_application_left_hours_apart_meet_before_they_go_on(
    shared: Services, limit: dict[str, str]
) -> None:
    """Shard 0 stands at one hour, and shard 1 at three hours; each minute has a record of both."""
    app = Application(shared, shards=2)
    numbers: dict[int, list[str]] = {}
    began = app.clock()
    for _ in range(240):
        answers = [
            app.kinesis.put_record(
                StreamName=app.stream, Data=b"x", PartitionKey="k", ExplicitHashKey=key
            )
            for key in ("0", str(2**128 - 1))
        ]
        numbers[app.clock() - began] = [answer["SequenceNumber"] for answer in answers]
        app.clock.advance(HOUR // 60)
    app.checkpoint(numbers[HOUR][0])
    app.checkpoint(numbers[3 * HOUR][1], key="shardId-000000000001")
    batches = list(begun(app.query(**limit)).drain())
    rows = [(row["shardId"], row["approximateArrivalTimestamp"]) for b in batches for row in b.rows]
    assert len(rows) == 179 + 59
    assert late(batches) == []
    if limit:
        assert {row["shardId"] for row in batches[0].rows} == {SHARD}
