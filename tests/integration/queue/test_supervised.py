"""A queue's workers in processes of one program: real programs, real kills, and their ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis.errors import OptionError, ProcessorError, QueueNotFoundError
from sparkinesis.queue import QueueApplication, QueueOptions
from tests import pace
from tests.answering import get
from tests.integration.queue import processes_program
from tests.integration.queue.scene import REGION, VISIBILITY, QueueScene
from tests.integration.worker.process_session import Program
from tests.pace import eventually


@pytest.fixture
def program(scene: QueueScene, tmp_path: Path) -> Iterator[Program]:
    made = Program(
        scene.server.endpoint_url, scene.arn, tmp_path, module=processes_program.__name__
    )
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)
    if made.supervisor is not None:
        made.wait()


def by(program: Program, data: str) -> list[int]:
    """The processes that a record was delivered to, in order."""
    return [event["worker"] for event in program.events() if event["data"] == data]


def all_of(program: Program, datas: list[bytes]) -> bool:
    return {data.decode() for data in datas} <= {event["data"] for event in program.events()}


def says(program: Program, text: str) -> None:
    eventually(lambda: text in program.said())


def in_flight(scene: QueueScene) -> int:
    (queue,) = scene.server.kinesis._regions[REGION].queues.values()
    return queue.in_flight(scene.clock())


def end(program: Program, scene: QueueScene) -> int:
    """Wait for the end of a program that was sent a signal; its polls end by the queue's clock."""
    assert program.supervisor is not None
    deadline = pace.Deadline(60.0)
    while not deadline.has_passed():
        scene.clock.advance(100)  # so slowly that no hold ends meanwhile
        try:
            return program.supervisor.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(program.said())


def received(url: str) -> dict[str, float]:
    """The records that each worker has received, by the supervisor's page."""
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(get(f"http://{url}/metrics")[1])
        for sample in family.samples
        if sample.name == "sparkinesis_queue_received_total"
    }


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_a_killed_process_is_replaced_and_what_it_had_in_hand_comes_again(
    program: Program, scene: QueueScene
) -> None:
    url = free_port()
    program.start(options={"http": url})

    def status() -> Any:
        return json.loads(get(f"http://{url}/status")[1])

    eventually(lambda: len(program.workers()) == 2)
    eventually(lambda: [one["state"] for one in status()["workers"]] == ["running"] * 2)
    scene.put(b"hang")
    eventually(lambda: by(program, "hang"))
    (killed,) = by(program, "hang")
    (other,) = {pid for pid in program.workers() if pid != killed}
    beside = [b"%d" % n for n in range(20)]
    scene.put(*beside)
    eventually(lambda: all_of(program, beside))
    assert {pid for data in beside for pid in by(program, data.decode())} == {other}
    eventually(lambda: in_flight(scene) == 1)
    eventually(lambda: status()["records"] == 20)
    found = status()
    assert (found["stream"], found["application"]) == ("queue orders", "orders")
    assert sorted(one["pid"] for one in found["workers"]) == sorted(program.workers())
    assert {get(f"http://{url}{path}")[0] for path in ("/livez", "/readyz")} == {200}

    os.kill(killed, signal.SIGKILL)
    said = f"pid {killed}) was killed by SIGKILL"
    eventually(lambda: any(said in note for note in status()["notes"]))
    (note,) = [note for note in status()["notes"] if said in note]
    assert note.endswith("the records that it had in hand are delivered again once their holds end")
    after = [b"%d" % n for n in range(20, 40)]
    scene.put(*after)
    eventually(lambda: all_of(program, after))
    eventually(lambda: len(program.workers()) == 2 and killed not in program.workers())
    assert other in program.workers()
    eventually(lambda: [one["state"] for one in status()["workers"]] == ["running"] * 2)
    eventually(lambda: in_flight(scene) == 1)
    assert by(program, "hang") == [killed], "it is held until the visibility timeout"
    scene.clock.advance(VISIBILITY * 1_000)
    eventually(lambda: len(by(program, "hang")) == 2)
    assert by(program, "hang")[1] in program.workers()
    eventually(lambda: in_flight(scene) == 0)
    eventually(lambda: status()["records"] == 41)
    assert (status()["lost_workers"], status()["shards"], status()["unread"]) == (1, [], [])
    assert (
        'sparkinesis_fleet_restarts_total{application="orders"} 1.0'
        in get(f"http://{url}/metrics")[1]
    )
    (of_other,) = [one["worker_id"] for one in status()["workers"] if one["pid"] == other]
    eventually(lambda: received(url).get(of_other, 0) >= 20)

    os.kill(program.pid, signal.SIGTERM)
    assert end(program, scene) == 0, program.said()
    eventually(lambda: not program.left())
    repeated = {
        data: n for data, n in Counter(e["data"] for e in program.events()).items() if n > 1
    }
    assert repeated == {"hang": 2}


@pytest.mark.parametrize(
    ("timeout", "signals"), [(1, [signal.SIGTERM]), (1_000, [signal.SIGTERM, signal.SIGINT])]
)
def test_a_handler_that_hangs_keeps_no_process_from_ending_in_time(
    program: Program, scene: QueueScene, timeout: int, signals: list[int]
) -> None:
    """Its record is released, and received again at once."""
    # One: the receive of another, which a second signal does not wait for, might get the record.
    program.start(processes=1, options={"shutdown_timeout": timeout})
    scene.put(b"hang")
    eventually(lambda: by(program, "hang"))
    began = time.monotonic()
    for number in signals:
        os.kill(program.pid, number)
        says(program, f"Received {signal.Signals(number).name}")
    assert end(program, scene) == 0, program.said()
    # As docs/queues.md says: wait_time, shutdown_timeout, and 10 s.
    assert time.monotonic() - began < pace.seconds(1 + 1 + 10)
    assert "did not shut down in time: records that it had not finished" in program.said()
    assert "is killed" not in program.said()
    eventually(lambda: not program.left())
    (record,) = scene.receive()
    assert record["ReceiveCount"] == 2


def test_without_its_supervisor_a_process_ends_and_releases_what_it_has(
    program: Program, scene: QueueScene
) -> None:
    program.start(processes=1, options={"shutdown_timeout": 0})
    scene.put(b"hang")
    eventually(lambda: by(program, "hang"))
    os.kill(program.pid, signal.SIGKILL)
    program.wait()

    def are_gone() -> bool:
        scene.clock.advance(100)
        return not program.left()

    eventually(are_gone)
    (record,) = scene.receive()
    assert record["ReceiveCount"] == 2


def test_stop_ends_all_processes_with_the_error_of_the_handler(
    program: Program, scene: QueueScene
) -> None:
    program.start(stops=True)
    eventually(lambda: len(program.workers()) == 2)
    scene.put(b"fail")
    assert end(program, scene) == 1
    assert program.said().rstrip().endswith("ValueError: This record cannot be handled.")
    eventually(lambda: not program.left())
    # The record may have reached the other process before that was told to end.
    (record,) = scene.receive()
    assert len(by(program, "fail")) < record["ReceiveCount"] <= 3


def not_at_the_top() -> Callable[[Any], None]:
    return lambda record: None


@pytest.mark.parametrize(
    ("given", "run", "kind", "match"),
    [
        *(
            ({}, {"processes": wrong}, OptionError, "^processes is .*'auto'.*whole number")
            for wrong in (0, "two", True)
        ),
        ({}, {"spark": object(), "processes": 2}, OptionError, "spark and processes"),
        ({}, {"workers": 8}, OptionError, r"workers without spark.*or run\(processes=8\)"),
        ({}, {"fleet": object()}, OptionError, "fleet without spark"),
        (
            {"handler": not_at_the_top()},
            {"processes": 2},
            ProcessorError,
            "its handler .*: define it at the top level of a module; create .* in its first call,",
        ),
        ({"decode": lambda data: data}, {"processes": 2}, OptionError, "^decode of the appl"),
        (
            {"options": QueueOptions(on_event=lambda event: event)},
            {"processes": 2},
            OptionError,
            "^on_event of the appl",
        ),
        ({"queue": "returns"}, {"processes": 2}, QueueNotFoundError, "'returns'.*orders"),
        (
            {"options": QueueOptions(extend=False)},
            {"processes": 2},
            OptionError,
            "A handler may take time_limit=3600 s, but records are held for 30 s",
        ),
    ],
)
def test_bad_input_is_told_before_any_process_starts(
    scene: QueueScene,
    given: dict[str, Any],
    run: dict[str, Any],
    kind: type[Exception],
    match: str,
) -> None:
    arguments = {"queue": scene.arn, "handler": processes_program.handle, **given}
    application: Any = QueueApplication(
        **arguments, region=REGION, endpoint=scene.server.endpoint_url
    )
    before = children()
    with pytest.raises(kind, match=match):
        application.run(**run)
    assert scene.calls("ReceiveQueueRecords") == 0
    assert children() == before


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
