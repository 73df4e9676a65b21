"""S1: streams that fail, leave or are made anew disturb no other stream, and lose no record."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sparkinesis import Application, FanOutOptions, FormerStreams, StreamConfig
from sparkinesis.errors import OptionError
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.lifecycle.streams import several_streams
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.conftest import AT_ONCE
from tests.integration.worker.scene import Scene, told
from tests.journal import PATIENCE
from tests.pace import eventually
from tests.streams import arn_of, identifier, make_anew, put

pytestmark = pytest.mark.usefixtures("often")

Make = Callable[..., Application]
SHARD = "shardId-000000000000"
SOON = {"failover_time": 1.0}
"""For tests that wait for leases that nobody takes."""
DENIED = Fault.error("AccessDeniedException", "User is not authorized")

FAULTS: dict[tuple[str, str | None], Fault] = {}
"""The fault of each operation on each stream or table."""


def fault_of(call: Call) -> Fault | None:
    return FAULTS.get((call.operation, call.stream))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(lease_tables=LeaseTables(), limits=AT_ONCE, faults=fault_of) as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    FAULTS.clear()


def problem(worker: Worker, stream: str) -> str | None:
    (one,) = (each for each in worker.streams() if each.stream == stream)
    return one.problem


def said(scene: Scene, text: str) -> int:
    return len(told(scene.caplog, text))


# --- epochs


def test_a_reader_notices_that_its_stream_was_made_anew_and_nothing_new_is_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at LATEST: the application was reading the name before."""
    monkeypatch.setattr(several_streams, "ASK_EVERY", 3600.0)
    scene.run(scene.several(scene.streams[:2], initial_position="latest"))
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    put(scene.kinesis, scene.streams[0], [b"old"], key="k")
    scene.journal.wait_for_data(b"old")
    before, after = make_anew(scene.kinesis, scene.streams[0])
    put(scene.kinesis, scene.streams[0], [b"new"], key="k")
    scene.journal.wait_for_data(b"new")
    assert scene.journal.data(before) == [b"old"]
    assert scene.journal.data(after) == [b"new"]
    lease = scene.rows()[f"{before}:{SHARD}"]
    assert "leaseOwner" not in lease, "the lease of the deleted stream is released"


def test_records_put_before_a_missing_stream_is_found_are_read_from_latest_too(
    scene: Scene,
) -> None:
    """While it is missing, it stops none of the others."""
    late = f"s-late-{uuid.uuid4().hex[:6]}"
    worker = scene.run(scene.several([late, scene.streams[0]], initial_position="latest"))
    missing, fine = worker.streams()
    assert f"'{late}'" in str(missing.problem)
    assert "StreamNotFoundError" in str(missing.problem)
    assert missing.identifier is fine.problem is None
    put(scene.kinesis, scene.streams[0], [b"read"], key="k")
    scene.journal.wait_for_data(b"read")
    scene.kinesis.create_stream(StreamName=late, ShardCount=1)
    put(scene.kinesis, late, [b"first"], key="k")
    scene.journal.wait_for_data(b"first")
    eventually(lambda: all(one.problem is None for one in worker.streams()))


def test_a_stream_that_is_made_anew_before_its_shards_are_listed_is_read_from_its_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at LATEST. Its shards get leases of the old identity, too, by which nobody reads."""
    monkeypatch.setattr(several_streams, "ASK_EVERY", 3600.0)
    epochs: list[tuple[str, str]] = []
    list_shards = StreamClient.list_shards

    def make_anew_before(client: StreamClient, **given: Any) -> tuple[list[Shard], int]:
        if client.address.name == scene.streams[0] and not epochs:
            epochs.append(make_anew(scene.kinesis, scene.streams[0]))
            put(scene.kinesis, scene.streams[0], [b"new"], key="k")
        return list_shards(client, **given)

    monkeypatch.setattr(StreamClient, "list_shards", make_anew_before)
    scene.run(scene.several(scene.streams[:2], initial_position="latest"))
    put(scene.kinesis, scene.streams[0], [b"newer"], key="k")
    scene.journal.wait_for_data(b"newer")
    ((before, after),) = epochs
    assert scene.journal.data(before) == []
    assert scene.journal.data(after) == [b"new", b"newer"]
    old = f"{before}:{SHARD}"
    eventually(lambda: "leaseOwner" not in scene.rows().get(old, {}))


def test_a_stream_that_was_deleted_stops_none_and_its_leases_go(scene: Scene) -> None:
    worker = scene.run(
        scene.several(scene.streams[:2], former_streams=FormerStreams(delete_after=0), options=SOON)
    )
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    gone = f"{identifier(scene.kinesis, scene.streams[0])}:{SHARD}"
    scene.kinesis.delete_stream(StreamName=scene.streams[0])
    eventually(lambda: gone not in scene.rows())
    assert "StreamNotFoundError" in str(problem(worker, scene.streams[0]))
    assert [one.stream for one in worker.status()] == [scene.streams[1]]
    assert said(scene, f"'{scene.streams[0]}' in us-east-1 at") >= 1
    assert said(scene, "cannot be read now, and is tried again") == 1
    put(scene.kinesis, scene.streams[1], [b"other"], key="k")
    scene.journal.wait_for_data(b"other")


# --- the user's function


def test_a_function_that_fails_changes_nothing_and_is_said_once(scene: Scene) -> None:
    scene.caplog.set_level(logging.INFO)
    answers: list[Callable[[], Any]] = [lambda: scene.streams[:1]]
    asked = threading.Semaphore(0)

    def tracker() -> Any:
        asked.release()
        return answers[-1]()

    def ask_twice() -> None:
        for _ in range(3):  # the first may have been under way
            assert asked.acquire(timeout=PATIENCE)

    worker = scene.run(scene.several(tracker))
    ask_twice()
    rubbish: list[tuple[Callable[[], Any], str]] = [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (list, "returned no stream at all"),
        (lambda: None, "returned None"),
        (lambda: "web", "returned 'web'"),
        (lambda: {"web": 1}, "returned {'web': 1}"),
        (lambda: [7], "it takes names"),
        (lambda: [scene.streams[0], scene.streams[0]], "twice"),
    ]
    for answer, text in rubbish:
        answers.append(answer)
        while asked.acquire(blocking=False):
            pass
        ask_twice()
        eventually(partial(said, scene, text))
        ask_twice()
        assert said(scene, text) == 1
        assert [one.stream for one in worker.streams()] == scene.streams[:1]
    answers.append(lambda: scene.streams[:2])
    eventually(lambda: len(worker.streams()) == 2)
    assert said(scene, "Asking for the streams to read fails no longer") == 1
    assert any("no stream at all" in each.error for each in worker.failures())
    put(scene.kinesis, scene.streams[0], [b"read"], key="k")
    scene.journal.wait_for_data(b"read")


def test_a_function_that_never_returns_hangs_neither_the_worker_nor_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_streams, "_LONG", 0.3)
    blocks, let_go = threading.Event(), threading.Event()

    def tracker() -> list[str]:
        if blocks.is_set():
            let_go.wait()
        return scene.streams[:1]

    worker = scene.run(scene.several(tracker))
    try:
        blocks.set()
        eventually(lambda: said(scene, "has not returned for"))
        before, _ = make_anew(scene.kinesis, scene.streams[0])  # the other questions go on
        put(scene.kinesis, scene.streams[0], [b"new"], key="k")
        scene.journal.wait_for_data(b"new")
        assert scene.journal.data(before) == []
        assert said(scene, "has not returned for") == 1
        assert worker.shutdown(20)
    finally:
        let_go.set()


def test_a_function_that_blocks_at_the_start_is_named_in_the_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_streams, "_LONG", 0.3)
    let_go = threading.Event()
    workers: list[Worker] = []

    def tracker() -> list[str]:
        let_go.wait()
        return scene.streams

    thread = threading.Thread(target=lambda: workers.append(scene.several(tracker).worker()))
    thread.start()
    eventually(lambda: said(scene, "has not returned for"))
    let_go.set()
    thread.join(PATIENCE)
    assert len(workers) == 1


def test_an_application_may_begin_without_streams(scene: Scene) -> None:
    wanted: list[str] = []
    scene.run(scene.several(lambda: list(wanted)))
    assert said(scene, "no streams to read yet") == 1
    put(scene.kinesis, scene.streams[0], [b"first"], key="k")
    wanted.append(scene.streams[0])
    scene.journal.wait_for_data(b"first")


# --- errors of the services


def test_a_stream_whose_shards_may_not_be_listed_stops_none_and_is_said_once(scene: Scene) -> None:
    scene.caplog.set_level(logging.INFO)
    FAULTS["ListShards", scene.streams[0]] = DENIED
    worker = scene.run(scene.several(scene.streams[:2]))
    put(scene.kinesis, scene.streams[1], [b"other"], key="k")
    scene.journal.wait_for_data(b"other")
    eventually(lambda: "kinesis:ListShards" in str(problem(worker, scene.streams[0])))
    tries = scene.server.kinesis.calls.count("ListShards", stream=scene.streams[0])
    eventually(
        lambda: scene.server.kinesis.calls.count("ListShards", stream=scene.streams[0]) > tries + 2
    )
    assert said(scene, "cannot be read now, and is tried again") == 1
    FAULTS.clear()
    put(scene.kinesis, scene.streams[0], [b"late"], key="k")
    scene.journal.wait_for_data(b"late")
    assert problem(worker, scene.streams[0]) is None
    assert said(scene, f"stream '{scene.streams[0]}'") >= 2
    assert said(scene, "can be read now") == 1


def test_a_stream_that_is_denied_later_is_named_in_the_status(scene: Scene) -> None:
    worker = scene.run(scene.several(scene.streams[:2]))
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    FAULTS["GetRecords", scene.streams[0]] = DENIED
    eventually(lambda: "kinesis:GetRecords" in str(problem(worker, scene.streams[0])))
    (one,) = (each for each in worker.streams() if each.stream == scene.streams[0])
    assert one.failing_for is not None
    assert problem(worker, scene.streams[1]) is None
    FAULTS.clear()
    put(scene.kinesis, scene.streams[0], [b"late"], key="k")
    scene.journal.wait_for_data(b"late")
    eventually(lambda: problem(worker, scene.streams[0]) is None)


def test_a_stream_whose_calls_hang_holds_up_neither_the_start_nor_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_streams, "_ENOUGH", 0.5)
    FAULTS["ListShards", scene.streams[0]] = Fault.delay(60_000)
    worker = scene.run(scene.several(scene.streams[:2]))
    put(scene.kinesis, scene.streams[1], [b"other"], key="k")
    scene.journal.wait_for_data(b"other")
    assert [one.stream for one in worker.status()] == [scene.streams[1]]
    assert worker.shutdown(20), "which is long before the call returns"


def test_a_lease_table_that_is_not_available_is_said_once_for_all_streams(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.caplog.set_level(logging.INFO)
    wanted = scene.streams[:1]
    app = scene.several(lambda: list(wanted))
    worker = scene.run(app)
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 1)
    FAULTS["Scan", app.name] = Fault.error("ProvisionedThroughputExceededException")
    wanted += scene.streams[1:]
    eventually(lambda: said(scene, "The lease table keeps streams from being opened"))
    eventually(lambda: said(scene, "Taking leases failed"))
    assert said(scene, "The lease table keeps streams from being opened") == 1
    assert said(scene, "cannot be read now") == 0
    FAULTS.clear()
    put(scene.kinesis, scene.streams[2], [b"late"], key="k")
    scene.journal.wait_for_data(b"late")
    assert said(scene, "The lease table keeps streams from being opened no longer") == 1
    assert worker.failure is None


def test_streams_of_two_servers_are_read_by_one_application(scene: Scene) -> None:
    with LocalServer(port=0) as other:
        abroad, name = other.client("kinesis", "eu-west-1"), "s-abroad"
        abroad.create_stream(StreamName=name, ShardCount=1)
        config = StreamConfig(name, region="eu-west-1", endpoint=other.endpoint_url)
        worker = scene.run(scene.several([scene.streams[0], config]))
        put(abroad, name, [b"abroad"], key="k")
        put(scene.kinesis, scene.streams[0], [b"here"], key="k")
        scene.journal.wait_for_data(b"abroad", b"here")
        worker.shutdown(10)


def test_one_stream_by_name_and_by_arn_is_read_once_and_said(scene: Scene) -> None:
    worker = scene.run(scene.several([scene.streams[0], arn_of(scene.kinesis, scene.streams[0])]))
    put(scene.kinesis, scene.streams[0], [b"once"], key="k")
    scene.journal.wait_for_data(b"once")
    first, second = worker.streams()
    assert first.problem is None
    assert "given twice: leave one out" in str(second.problem)
    assert scene.journal.data() == [b"once"]


def test_shards_of_a_stream_that_has_left_are_not_unread(scene: Scene) -> None:
    wanted = scene.streams[:2]
    worker = scene.run(scene.several(lambda: list(wanted)))
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    wanted.pop()
    eventually(lambda: len(worker.status()) == 1)
    eventually(lambda: sum("leaseOwner" in row for row in scene.rows().values()) == 1)
    looked = worker._coordinator.snapshot.at
    eventually(lambda: (worker._coordinator.snapshot.at or 0) > (looked or 0))
    assert worker.unread_shards() == {}


# --- workers with different sets of streams


def test_shards_of_a_stream_that_cannot_be_read_are_unread(scene: Scene) -> None:
    app = scene.several(scene.streams[:2], options=SOON)
    scene.run(app).shutdown(10)
    expected = f"{identifier(scene.kinesis, scene.streams[0])}:{SHARD}"
    FAULTS["DescribeStreamSummary", scene.streams[0]] = DENIED
    worker = scene.run(app)
    assert "kinesis:DescribeStreamSummary" in str(problem(worker, scene.streams[0]))
    eventually(lambda: list(worker.unread_shards() or ()) == [expected])


# --- enhanced fan-out


def consumers(kinesis: Any, stream: str) -> list[str]:
    found = kinesis.list_stream_consumers(StreamARN=arn_of(kinesis, stream))["Consumers"]
    return [one["ConsumerName"] for one in found if one["ConsumerStatus"] == "ACTIVE"]


def has_none(kinesis: Any, stream: str) -> bool:
    """Ask as often as the service permits."""
    with contextlib.suppress(kinesis.exceptions.LimitExceededException):
        return consumers(kinesis, stream) == []
    return False


def test_each_stream_has_a_consumer_which_goes_with_it(scene: Scene) -> None:
    wanted = list(scene.streams)
    FAULTS["RegisterStreamConsumer", scene.streams[0]] = DENIED
    app = scene.several(
        lambda: list(wanted),
        options={**SOON, "retrieval": "efo", "fan_out": FanOutOptions(deregister=True)},
    )
    worker = scene.run(app)
    for name in scene.streams[1:]:
        put(scene.kinesis, name, [name.encode()], key="k")
    scene.journal.wait_for_data(*(name.encode() for name in scene.streams[1:]))
    assert "RegisterStreamConsumer" in str(problem(worker, scene.streams[0]))
    assert [consumers(scene.kinesis, name) for name in scene.streams] == [
        [],
        [app.name],
        [app.name],
    ]
    wanted.remove(scene.streams[1])
    eventually(lambda: has_none(scene.kinesis, scene.streams[1]))
    FAULTS.clear()
    put(scene.kinesis, scene.streams[0], [b"late"], key="k")
    scene.journal.wait_for_data(b"late")
    assert worker.shutdown(30)
    assert [consumers(scene.kinesis, name) for name in scene.streams] == [[], [], []]
    calls = scene.server.kinesis.calls
    assert calls.count("DeregisterStreamConsumer", stream=scene.streams[1]) == 1, (
        "one farewell each"
    )


# --- options


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/web"
CONSUMER = f"{ARN}/consumer/a:1"
EFO = {"retrieval": "efo"}
DEREGISTER = {**EFO, "fan_out": FanOutOptions(deregister=True)}


@pytest.mark.parametrize(
    ("config", "options", "text"),
    [
        ({"stream": ARN, "region": "us-east-1"}, {}, "ARN names 'eu-west-1'"),
        ({"stream": "web", "consumer_arn": CONSUMER}, {}, "only retrieval='efo'"),
        ({"stream": "app", "consumer_arn": CONSUMER}, EFO, "a consumer of the stream 'web'"),
        ({"stream": "web", "consumer_arn": "a"}, EFO, "must be the ARN"),
        ({"stream": "web", "consumer_arn": CONSUMER}, DEREGISTER, "deregister is for"),
    ],
)
def test_settings_of_a_stream_that_do_not_fit_are_refused_before_any_call(
    scene: Scene, config: dict[str, Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        scene.application(stream=None, streams=[StreamConfig(**config)], options=options)


def test_a_function_for_former_streams_that_returns_rubbish_deletes_nothing(scene: Scene) -> None:
    wanted = scene.streams[:2]
    answers: list[Any] = ["all of them"]
    scene.run(
        scene.several(
            lambda: list(wanted),
            former_streams=FormerStreams(0, only=lambda: answers[-1]),
            options=SOON,
        )
    )
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    wanted.pop()
    eventually(lambda: said(scene, "it must return streams"))
    assert len(scene.rows()) == 2
    answers.append([scene.streams[1]])
    eventually(lambda: len(scene.rows()) == 1)
    assert said(scene, "it must return streams") == 1
