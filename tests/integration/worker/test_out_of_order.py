"""A server that misplaces records: a worker gets each one, in order, and says what came."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local.encoding.codecs import JsonCodec
from sparkinesis.local.model import limits, registered_consumer
from tests.integration.worker.scene import FIRST, Scene, checkpoint, told
from tests.pace import eventually

EXPECTED = [b"%d" % number for number in range(6)]


@pytest.fixture
def change_page(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[list[Any]], None]], list[bool]]:
    """Have the server change the records of its first page or event of several; tells if it has."""

    def change(how: Callable[[list[Any]], None]) -> list[bool]:
        encode = JsonCodec._page
        done: list[bool] = []

        def encode_page(codec: JsonCodec, page: Any) -> bytes:
            body = encode(codec, page)
            answer = json.loads(body)
            if len(answer["Records"]) > 1 and not done:
                done.append(True)
                how(answer["Records"])
                return json.dumps(answer).encode()
            return body

        monkeypatch.setattr(JsonCodec, "_page", encode_page)
        return done

    return change


def one_bad_number(records: list[Any]) -> None:
    records[3]["SequenceNumber"] = "3x"


def misplaced(records: list[Any]) -> None:
    records[1], records[4] = records[4], records[1]
    records.append(records[0])


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
@pytest.mark.parametrize("how", [one_bad_number, misplaced])
def test_a_page_that_is_wrong_once(
    scene: Scene, change_page: Callable[..., list[bool]], how: Callable[[list[Any]], None]
) -> None:
    """One with a bad number is fetched anew; one out of order is put in order."""
    for data in EXPECTED:
        scene.put(data)
    changed = change_page(how)
    scene.start()
    scene.journal.wait_for_data(*EXPECTED)
    assert scene.journal.data() == EXPECTED
    assert changed
    assert bool(told(scene.caplog, f"records of shard {FIRST} of")) == (how is misplaced)


@pytest.mark.parametrize("retrieval", ["polling"])
def test_a_bad_number_that_only_the_delivery_meets(
    scene: Scene, change_page: Callable[..., list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each number of a large page is looked at. The search for the last record meets it."""
    monkeypatch.setattr("sparkinesis.stream.calls.answers.decoding._CHECKED_IN_FULL", 4)
    for data in EXPECTED:
        scene.put(data)
    change_page(one_bad_number)
    scene.start({"task_backoff": 0.05}, on_records=checkpoint)
    scene.journal.wait_for_data(*EXPECTED)
    assert scene.journal.data() == EXPECTED


@pytest.mark.parametrize("retrieval", ["efo"])
def test_two_events_that_change_places(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is delivered, and checkpointed; then both come again, in order."""
    numbers = [scene.put(data) for data in EXPECTED]
    monkeypatch.setattr(limits, "MAX_RECORDS_PER_GET", 2)
    following = registered_consumer.ServedSubscription.next
    late: list[Any] = []

    def swapped(self: registered_consumer.ServedSubscription, now: int, quota: Any) -> Any:
        if len(late) == 1:
            late.append(None)
            return late[0]
        step = following(self, now, quota)
        has_records = isinstance(step, registered_consumer.PushedEvent) and step.page.records.count
        if not late and has_records:
            late.append(step)
            return following(self, now, quota)
        return step

    monkeypatch.setattr(registered_consumer.ServedSubscription, "next", swapped)
    before: list[tuple[bytes, str]] = []

    def note(batch: Any, checkpointer: Any) -> None:
        before.append((batch.records[0].data, scene.row().checkpoint.sequence_number))
        checkpoint(batch, checkpointer)

    scene.start(on_records=note)
    scene.journal.wait(lambda: scene.journal.data()[-6:] == EXPECTED)
    assert scene.journal.data() == [b"2", b"3", *EXPECTED]
    # A crash in between loses nothing: the checkpoint was moved back.
    assert before[:2] == [(b"2", "TRIM_HORIZON"), (b"0", "TRIM_HORIZON")]
    assert told(scene.caplog, f"sequence number {numbers[0]} came behind {numbers[3]}")
    end = ExtendedSequenceNumber(numbers[-1])
    eventually(lambda: scene.row().checkpoint == end)
