"""`sparkinesis queues`, on a local Kinesis: from the first queue to its deletion."""

from __future__ import annotations

import re

import pytest

from sparkinesis.local import LocalServer
from tests.command import asked, call, failure, objects, place_of

MAKE = ("queues", "create", "orders", "--stream", "s")


@pytest.fixture
def place(server: LocalServer) -> list[str]:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="s", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    kinesis.create_stream(StreamName="t", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    kinesis.create_stream(StreamName="provisioned", ShardCount=1)
    return place_of(server)


def lines(text: str) -> list[str]:
    return [re.sub(" {2,}", "  ", line.strip()) for line in text.splitlines()]


def test_a_queue_is_made_and_described_and_listed(place: list[str]) -> None:
    (made,) = objects(call(*MAKE, "--json", *place))
    assert made["queue"] == "orders"
    assert made["status"] == "ACTIVE"
    assert made["stream"].endswith(":stream/s")
    assert made["from"] in {"LATEST", "AT_TIMESTAMP"}
    assert (made["visibility_timeout"], made["max_receive_count"]) == (30, 6)
    for queue in ("orders", made["arn"]):
        assert objects(call("queues", "describe", queue, "--json", *place)) == [made]
    shown = call("queues", "describe", "orders", *place)
    assert {"queue  orders", "max receive count  6"} <= {*lines(shown.stdout)}
    assert objects(call(*MAKE, "--json", *place)) == [made], "it is there already"
    call("queues", "create", "other", "--stream", "t", "--max-receive-count", "none", *place)
    listed = lines(call("queues", "list", *place).stdout)
    assert listed[0] == "queue  status  stream  created  arn"
    assert listed[1].startswith("orders  ACTIVE  s  20")
    assert listed[1].endswith(f"Z  {made['arn']}")
    assert listed[2].startswith("other  ACTIVE  t  ")
    assert listed[-1] == "2 queues"


def test_what_is_not_given_stays(place: list[str]) -> None:
    make = (*MAKE, "--visibility-timeout", "0", "--max-receive-count", "9", "--json", *place)
    (found,) = objects(call(*make))
    assert (found["visibility_timeout"], found["max_receive_count"]) == (0, 9)
    update = ("queues", "update", "orders", "--json", *place)
    (found,) = objects(call(*update, "--visibility-timeout", "60"))
    assert (found["visibility_timeout"], found["max_receive_count"]) == (60, 9)
    (found,) = objects(call(*update, "--max-receive-count", "none"))
    assert (found["visibility_timeout"], found["max_receive_count"]) == (60, None)
    (found,) = objects(call(*update, "--max-receive-count", "1"))
    assert (found["visibility_timeout"], found["max_receive_count"]) == (60, 1)
    assert "Nothing would change" in failure(call(*update))


def test_a_queue_is_deleted_after_a_question(server: LocalServer, place: list[str]) -> None:
    call(*MAKE, *place)
    delete = ("queues", "delete", "orders", *place)
    assert "no terminal to ask" in failure(call(*delete))
    no = asked("n\n", *delete)
    assert no.returncode == 1
    assert re.search(
        r"Delete queue 'orders' \(\S+\) in us-east-1 at .*\? Its dead letters,", no.stderr
    )
    assert "visibility timeout" in no.stderr, "what would be deleted is shown"
    assert objects(call("queues", "list", "--json", *place))[0]["status"] == "ACTIVE"
    assert asked("y\n", *delete).stdout.strip() == "Deleted the queue orders."
    assert server.client("kinesis").list_queues()["QueueSummaries"] == []


WRONG = [
    (["describe", "ordres"], "There is no queue 'ordres'"),
    (["update", "ordres", "--visibility-timeout", "1"], "There is no queue 'ordres'"),
    (["delete", "ordres", "--yes"], "There is no queue 'ordres'"),
    (["describe", "a b"], "a queue's name has 1 to 128"),
    (["create", "q", "--stream", "provisioned"], "is PROVISIONED, and only on-demand"),
    (["create", "q", "--stream", "none"], "There is no stream 'none'"),
    (["create", "q", "--stream", "s", "--from", "1"], "starting_position is '1'"),
    (["create", "q", "--stream", "s", "--max-receive-count", "0"], "takes 1 to 1000, or none"),
    (["update", "q", "--max-receive-count", "1001"], "takes 1 to 1000, or none"),
]


def test_each_wrong_use_has_its_words(place: list[str]) -> None:
    for arguments, said in WRONG:
        assert said in failure(call("queues", *arguments, *place))
    assert objects(call("queues", "list", "--json", *place)) == []
