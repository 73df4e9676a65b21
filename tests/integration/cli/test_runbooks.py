"""Runbooks of docs/runbooks, followed on a local Kinesis with their commands as printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from sparkinesis import Application, Retry, WorkerOptions
from sparkinesis.events import BatchFailed, Event, LeaseEnded, TableFound, TableMissing
from sparkinesis.local import LocalServer
from tests.command import call, objects, place_of
from tests.documents import ROOT, blocks, commands
from tests.pace import eventually
from tests.streams import put

SHARDS = 2


def printed(page: str, start: str) -> list[str]:
    """Return the words of the first command of a runbook that begins so."""
    lines = [
        line
        for block in blocks(ROOT / "docs" / "runbooks" / f"{page}.md")
        if block.language in {"shell", "console"}
        for line in commands(block)
    ]
    return shlex.split(next(line for line in lines if line.startswith(start)))


class Trial:
    """The application `delays` on the stream `flights`, with a worker that runs."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.kinesis = server.client("kinesis")
        self.kinesis.create_stream(StreamName="flights", ShardCount=SHARDS)
        self.seen: list[bytes] = []
        self.events: list[Event] = []
        self.bad: set[bytes] = set()
        self.worker = Application(
            "delays",
            "flights",
            self.handle,
            region="us-east-1",
            endpoint=server.endpoint_url,
            initial_position="trim_horizon",
            on_error=Retry(cap=0.1),
            options=WorkerOptions(failover_time=2.0, on_event=self.events.append),
        ).worker()

    def handle(self, batch: object) -> None:
        records = [record.data for record in batch]  # type: ignore[attr-defined]
        if self.bad & set(records):
            raise ValueError("cannot be processed")
        self.seen += records

    def put(self, first: int, behind: int) -> set[bytes]:
        """Put numbers, which go into all shards."""
        data = [b"%d" % number for number in range(first, behind)]
        put(self.kinesis, "flights", data)
        return set(data)


@pytest.fixture
def trial() -> Iterator[Trial]:
    with LocalServer(limits=None) as server:
        one = Trial(server)
        one.worker.start()
        yield one
        one.worker.shutdown()


def test_the_checkpoints_that_workers_log_bring_back_a_deleted_table(trial: Trial) -> None:
    before = trial.put(0, 40)
    eventually(lambda: set(trial.seen) == before)
    eventually(lambda: all(one.checkpoint_age == 0 for one in trial.worker.status()))
    dynamodb = trial.server.client("dynamodb")
    dynamodb.delete_table(TableName="delays")
    eventually(lambda: {TableMissing} & set(map(type, trial.events)))
    meanwhile = trial.put(40, 80)

    doctor = printed("lease-table-deleted", "sparkinesis doctor")
    told = call(*doctor[1:], *place_of(trial.server))
    assert (told.returncode, "There is no lease table 'delays'" in told.stdout) == (1, True)
    eventually(lambda: len({one.lease for one in lost_of(trial)}) == SHARDS)
    lost = {event.lease: event for event in lost_of(trial)}
    create = printed("lease-table-deleted", "aws dynamodb create-table")
    dynamodb.create_table(**arguments(create))
    reset = printed("lease-table-deleted", "sparkinesis reset delays --stream flights --to shard")
    seen_before = len(trial.seen)
    for event in lost.values():
        where = f"{event.shard_id}={event.checkpoint}"
        line = [re.sub(r"shardId-\d+=SEQUENCE_NUMBER:0", where, word) for word in reset]
        said = call(*line[1:], "--yes", *place_of(trial.server))
        assert "Moved 1 lease of delays." in said.stdout, said

    eventually(lambda: set(trial.seen) == before | meanwhile)
    eventually(lambda: any(isinstance(event, TableFound) for event in trial.events))
    assert not before & set(trial.seen[seen_before:]), "nothing is processed twice"


def lost_of(trial: Trial) -> list[LeaseEnded]:
    return [event for event in trial.events if isinstance(event, LeaseEnded)]


def arguments(create: list[str]) -> dict[str, object]:
    """Return what the AWS CLI sends for a printed ``create-table``."""
    options = dict(zip(create[3::2], create[4::2], strict=True))
    (attribute,), (key,) = (
        [dict(pair.split("=") for pair in options.pop(f"--{name}").split(","))]
        for name in ("attribute-definitions", "key-schema")
    )
    return {
        "TableName": options["--table-name"],
        "BillingMode": options["--billing-mode"],
        "AttributeDefinitions": [attribute],
        "KeySchema": [key],
    }


def test_a_batch_that_fails_is_skipped_by_the_last_record_that_its_line_names(trial: Trial) -> None:
    trial.bad = {b"bad"}
    put(trial.kinesis, "flights", [b"bad"])

    def failed() -> list[BatchFailed]:
        return [event for event in trial.events if isinstance(event, BatchFailed)]

    eventually(failed)
    good = trial.put(0, 40)
    reset = printed("shard-stands-still", "sparkinesis reset delays --stream flights --to")
    event = failed()[-1]
    tail = " ".join(printed("shard-stands-still", "sparkinesis tail flights --shard"))
    for word, now in (
        ("shardId-000000000002", event.shard_id),
        ("FIRST", event.first),
        ("LAST", event.last),
    ):
        tail = tail.replace(word, str(now))
    (record,) = objects(call(*tail.split()[1:], *place_of(trial.server)))
    assert record["data"] == "bad"
    where = f"{event.shard_id}={event.last}"
    line = [re.sub(r"shardId-\d+=SEQUENCE_NUMBER", where, word) for word in reset]
    said = call(*line[1:], "--yes", *place_of(trial.server))
    assert "Moved 1 lease of delays." in said.stdout, said
    eventually(lambda: good <= set(trial.seen))
    assert b"bad" not in trial.seen
