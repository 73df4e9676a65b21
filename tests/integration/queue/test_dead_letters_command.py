"""`sparkinesis queues dead-letters`: listed, restored, discarded and exported, whatever fails."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.cli.queues.holding import VISIBILITY, DeadLetterFilter, Holding
from sparkinesis.local import Call, Fault
from sparkinesis.queue.client import DEAD_LETTERS, QueueClient
from sparkinesis.queue.finding import Queues
from tests import command
from tests.command import COMMAND, Result, asked, call, failure
from tests.failing import Failing
from tests.integration.queue.commands import (
    State,
    kill,
    place_of,
    process_of,
    read_until,
    received,
    state,
    time_passes,
)
from tests.integration.queue.scene import REGION, QueueScene
from tests.journal import PATIENCE
from tests.pace import eventually

RECEIVE = "ReceiveDeadLetterQueueRecords"
RESTORE = "RestoreDeadLetterQueueRecords"
DISCARD = "AcknowledgeDeadLetterQueueRecords"
HIDE = "UpdateDeadLetterQueueRecordsVisibility"
THROTTLED = Fault.error("ThrottlingException")

THREE = (("a", b"one"), ("b", b'{"n": 2}\n'), ("a", b"\xff\x00"))
DATA = [{"data": "one"}, {"data": '{"n": 2}\n'}, {"data_base64": "/wA="}]
"""The data of these in objects."""


@pytest.fixture(autouse=True)
def moves(scene: QueueScene) -> Iterator[threading.Event]:
    with time_passes(scene) as event:
        yield event


def run(scene: QueueScene, *options: str, code: int = 0) -> Result:
    result = call("queues", "dead-letters", "orders", *options, *place_of(scene))
    assert result.returncode == code, (result.stdout, result.stderr)
    return result


def objects(scene: QueueScene, *options: str) -> list[dict[str, Any]]:
    return command.objects(run(scene, "--json", *options))


def data_of(one: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name.startswith("data")}


def many(number: int) -> list[tuple[str, bytes]]:
    return [(f"key-{one}", b"x") for one in range(number)]


def fail(scene: QueueScene, *plans: Failing) -> None:
    def plan(one: Call) -> Fault | None:
        return next((found for each in plans if (found := each(one)) is not None), None)

    scene.server.kinesis.faults = plan


def test_they_are_listed_and_released(scene: QueueScene) -> None:
    kill(scene, *THREE, ("long", b"x" * 61))
    found = objects(scene)
    keys = {str(data_of(one)): one["partition_key"] for one in found}
    expected = dict(zip(map(str, DATA), "aba", strict=True))
    assert keys == {**expected, str({"data": "x" * 61}): "long"}
    assert found[0]["arrived_at"] == found[0]["first_received_at"] == "2023-11-14T22:13:20.000Z"
    assert state(scene) == State(dead=4)
    listed = run(scene)
    assert "until this command ends, no other receive gets them" in listed.stderr
    heads, *rows, total = [line.split() for line in listed.stdout.splitlines()]
    assert " ".join(heads) == "record id receives key arrived bytes data"
    assert {row[0] for row in rows} == {one["record_id"] for one in found}
    shown = {" ".join((row[2], *row[4:])) for row in rows}
    long = f"long 61 {'x' * 60}..."
    assert shown == {"a 3 one", 'b 9 {"n": 2}\\n', "a 2 \\xff\\x00", long}, "a line stays a line"
    assert " ".join(total) == "4 dead letters"
    assert state(scene) == State(dead=4)


def test_those_that_are_restored_are_received_with_a_new_count(scene: QueueScene) -> None:
    kill(scene, *THREE)
    assert len(objects(scene, "--key", "a", "--count", "1")) == 1
    said = run(scene, "--restore", "--key", "a", "--yes").stdout
    assert said == "Restored 2 of 2 dead letters.\n"
    assert state(scene) == State(visible=2, dead=1)
    assert received(scene) == [("a", b"one", 1), ("a", b"\xff\x00", 1)]


CHOSEN = [
    (["--least-receives", "3"], [2]),
    (["--most-receives", "3"], [0, 1]),  # each receive counts
    (["--key", "a"], [0, 2]),
    (["--key", "a", "--key", "b"], [0, 1, 2]),
    (["--from", "2023-11-14T22:13:21Z"], [2]),
    (["--to", "2023-11-14T22:13:21Z", "--key", "a"], [0]),
    (["--count", "1", "--key", "b"], [1]),
    (["--record-id", "none"], []),
]


def test_options_choose(scene: QueueScene) -> None:
    kill(scene, *THREE[:2])
    scene.clock.advance(1000)
    kill(scene, THREE[2], receives=2)
    for options, chosen in CHOSEN:
        found = sorted(DATA.index(data_of(one)) for one in objects(scene, *options))
        assert found == chosen, options
        assert state(scene) == State(dead=3)


def test_no_more_are_received_than_are_wanted(scene: QueueScene) -> None:
    kill(scene, *many(15))
    first, *others = objects(scene, "--count", "12")
    assert len(others) == 11
    assert [each.records for each in scene.server.kinesis.calls.select(RECEIVE)] == [10, 2]
    before = len(scene.server.kinesis.calls.select(RECEIVE))
    assert objects(scene, "--record-id", first["record_id"])[0]["data"] == "x"
    last = scene.server.kinesis.calls.select(RECEIVE)[before:][-1]
    assert last.records, "the one that is wanted is found, and no other can be"


def test_a_question_shows_what_it_is_about(scene: QueueScene) -> None:
    kill(scene, *many(23))
    discard = ("queues", "dead-letters", "orders", "--discard", *place_of(scene))
    assert "no terminal to ask" in failure(call(*discard))
    assert not scene.server.kinesis.calls.select(RECEIVE)
    no = asked("n\n", *discard)
    assert (no.returncode, no.stdout.strip()) == (1, "Discarded 0 of 23 dead letters.")
    assert no.stderr.count("key-") == 20
    assert "and 3 more" in no.stderr
    assert "Discard 23 dead letters of queue 'orders' (" in no.stderr
    assert state(scene) == State(dead=23)
    assert asked("y\n", *discard).stdout.strip() == "Discarded 23 of 23 dead letters."
    assert state(scene) == State()


def test_a_signal_at_the_question_is_a_no(scene: QueueScene) -> None:
    kill(scene, *THREE)
    with process_of(scene, "dead-letters", "orders", "--restore") as process:
        read_until(process, "? [y/N]:")
        assert state(scene) == State(held=3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 1
    assert state(scene) == State(dead=3)


def test_holds_outlast_a_question(scene: QueueScene, moves: threading.Event) -> None:
    kill(scene, *many(12))
    holds = holds_of(scene)
    found = [one.held for taken in holds.matching(DeadLetterFilter()) for one in taken]
    moves.clear()
    for extended in (2, 4, 6):
        scene.clock.advance(900 * VISIBILITY)
        holds._keeper.look_at_time()
        scene.wait_for_calls(HIDE, extended)
    holds.settle(found)
    holds.close()
    assert (holds.settled, list(holds.problems())) == (12, [])
    assert state(scene) == State()


def holds_of(scene: QueueScene, *, sees_time: bool = True) -> Holding:
    address = Queues(REGION, scene.server.endpoint_url).locate("orders")
    client = QueueClient(address, calls=DEAD_LETTERS)
    clock = (lambda: scene.clock() / 1000) if sees_time else (lambda: 0.0)
    holds = Holding(client, clock=clock)
    holds.start()
    return holds


def test_each_is_found_once_although_holds_end(scene: QueueScene) -> None:
    """A suspended process: its own clock stands still, and it extends nothing."""
    kill(scene, *many(25))
    holds = holds_of(scene, sees_time=False)
    found: list[str] = []
    for taken in holds.matching(DeadLetterFilter()):
        found += [one.record.partition_key or "" for one in taken]
        scene.clock.advance(1000 * VISIBILITY)
    holds.close()
    assert sorted(found) == sorted(key for key, _ in many(25))
    assert state(scene) == State(dead=25)


def test_they_are_exported_before_they_are_discarded(scene: QueueScene, tmp_path: Path) -> None:
    kill(scene, *THREE)
    file = tmp_path / "dead.jsonl"
    run(scene, "--key", "none", "--export", str(file))
    assert not file.exists(), "without dead letters there is no file"
    said = run(scene, "--discard", "--export", str(file), "--yes").stdout
    assert said == f"Discarded 3 of 3 dead letters. 3 exported to {file}.\n"
    assert state(scene) == State()
    lines = file.read_bytes()
    assert sorted(str(data_of(json.loads(line))) for line in lines.splitlines()) == sorted(
        map(str, DATA)
    )
    again = call("queues", "dead-letters", "orders", "--export", str(file), *place_of(scene))
    assert "which is there already. Name a new file" in failure(again)
    assert file.read_bytes() == lines
    put = [COMMAND, "put", "s", "--json", *place_of(scene)]
    subprocess.run(put, input=lines, capture_output=True, check=True)
    assert [(key, data) for key, data, _ in received(scene)] == sorted(THREE)


def test_nothing_is_received_for_a_file_that_cannot_be(scene: QueueScene) -> None:
    kill(scene, *THREE)
    words = ("dead-letters", "orders", "--discard", "--yes", "--export", "/nowhere/dead.jsonl")
    assert "cannot be written: No such file" in failure(call("queues", *words, *place_of(scene)))
    assert not scene.server.kinesis.calls.select(RECEIVE)


def test_failures_that_pass_are_outlasted(scene: QueueScene) -> None:
    kill(scene, *many(25))
    some = Fault(code="InternalFailureException", entries=frozenset({0, 3}))
    plans = [
        Failing(RECEIVE, THROTTLED),
        Failing(RESTORE, some, THROTTLED),
        Failing(HIDE, THROTTLED),
    ]
    fail(scene, *plans)
    said = run(scene, "--restore", "--key", "key-7", *keys(1, 23), "--yes").stdout
    assert said == "Restored 22 of 22 dead letters.\n"
    assert [plan.met for plan in plans] == [1, 2, 1]
    assert state(scene) == State(visible=22, dead=3)


def keys(first: int, behind: int) -> list[str]:
    return [word for number in range(first, behind) for word in ("--key", f"key-{number}")]


def test_more_are_done_than_wait_at_one_time(scene: QueueScene) -> None:
    kill(scene, *many(330))
    assert run(scene, "--discard", "--yes").stdout == "Discarded 330 of 330 dead letters.\n"
    assert state(scene) == State()


def test_what_a_lost_answer_leaves_unknown_is_told(scene: QueueScene) -> None:
    kill(scene, *many(1))
    fail(scene, Failing(DISCARD, Fault.dropped("after")))
    result = run(scene, "--discard", "--yes", code=1)
    assert result.stdout == "Discarded 0 of 1 dead letter.\n"
    assert "1 could not be confirmed: an answer was lost" in result.stderr
    assert "Run it again for the rest." in result.stderr
    assert run(scene, "--discard", "--yes").stdout == "Discarded 0 of 0 dead letters.\n"


def test_what_a_lost_receive_hides_is_told(scene: QueueScene) -> None:
    kill(scene, *many(1))
    fail(scene, Failing(RECEIVE, Fault.dropped("after")))
    result = run(scene, code=1)
    assert result.stdout == "0 dead letters\n"
    assert "1 receive failed without an answer" in result.stderr
    assert f"hidden for up to {VISIBILITY} s" in result.stderr
    scene.clock.advance(1000 * VISIBILITY)
    assert run(scene).stdout.endswith("1 dead letter\n")


@pytest.mark.parametrize(
    ("operation", "said", "left"),
    [
        (RECEIVE, "", State(dead=12)),
        (RESTORE, r"Restored 0 of 1[01] dead letters\.\n", None),
        (HIDE, r"Restored 11 of 11 dead letters\.\n", State(visible=11, held=1)),
    ],
)
def test_what_is_not_allowed_is_named(
    scene: QueueScene, operation: str, said: str, left: State | None
) -> None:
    kill(scene, *many(12))
    fail(scene, Failing(operation, then=Fault.error("AccessDeniedException")))
    result = run(scene, "--restore", *keys(0, 11), "--yes", code=1)
    assert f"Not allowed to call {operation} on queue 'orders'" in result.stderr
    assert re.fullmatch(said, result.stdout)
    scene.server.kinesis.faults = None
    if left is not None:
        assert state(scene) == left
    scene.clock.advance(1000 * VISIBILITY)
    assert state(scene).held == 0


def test_a_stopped_run_says_what_was_done_and_releases_the_rest(
    scene: QueueScene, moves: threading.Event
) -> None:
    kill(scene, *THREE, *many(20))
    moves.clear()
    with process_of(scene, "dead-letters", "orders", "--restore", "--key", "a", "-y") as process:
        eventually(lambda: state(scene) == State(visible=2, held=21))
        process.send_signal(signal.SIGINT)
        read_until(process, "Stopping: the receive under way ends within 5 s.")
        moves.set()
        told, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, told) == (1, b"Restored 2 of 2 dead letters.\n")
        assert b"The command was stopped, and has released what is left." in errors
    assert state(scene) == State(visible=2, dead=21)


WRONG = [
    (["--restore", "--discard"], "--restore and --discard exclude each other"),
    (["--from", "latest"], "--from is 'latest'; it takes an instant with a time zone"),
    (["--from", "9x", "--to", "1"], "The options have 2 errors:"),
    (["--from", "1h", "--to", "2h"], "--to is not after --from"),
    (["--least-receives", "3", "--most-receives", "2"], "no dead letter has both"),
]


def test_each_wrong_use_has_its_words(scene: QueueScene) -> None:
    for options, said in WRONG:
        result = call("queues", "dead-letters", "orders", "--yes", *options, *place_of(scene))
        assert (result.returncode, result.stdout) == (1, "")
        assert said in result.stderr
    assert not scene.server.kinesis.calls.select("ListQueues")
