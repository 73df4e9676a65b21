"""What tests of the commands that receive from a queue share."""

from __future__ import annotations

import base64
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.command import COMMAND
from tests.integration.queue.scene import REGION, QueueScene


class State(NamedTuple):
    """How many records of a queue are where. Those that nobody has received are not counted."""

    visible: int = 0
    dead: int = 0
    held: int = 0


def state(scene: QueueScene) -> State:
    queue, now = queue_of(scene), scene.clock()
    with scene.server.kinesis._lock:
        queue.settle(now)
        held = queue.in_flight(now)
        return State(len(queue._visible[False]), len(queue._visible[True]), held)


def queue_of(scene: QueueScene) -> Any:
    (queue,) = scene.server.kinesis._regions[REGION].queues.values()
    return queue


def received(scene: QueueScene) -> list[tuple[str, bytes, int]]:
    """Receive; return the key, the data and the receives of each record."""
    return sorted(
        (one["PartitionKey"], base64.b64decode(one["Data"]), one["ReceiveCount"])
        for one in scene.receive()
    )


def place_of(scene: QueueScene) -> tuple[str, ...]:
    return ("--region", REGION, "--endpoint", scene.server.endpoint_url)


def kill(scene: QueueScene, *records: tuple[str, bytes], receives: int = 1) -> None:
    """Put records, by key and data, and make dead letters of them by so many receives each."""
    entries = [{"PartitionKey": key, "Data": data} for key, data in records]
    for at in range(0, len(entries), 500):
        scene.kinesis.put_records(StreamName=scene.stream, Records=entries[at : at + 500])
    set_most_receives(scene, receives)
    left = receives * len(records)
    while left:
        left -= len(scene.receive(10, VisibilityTimeoutSeconds=0))
    set_most_receives(scene, 6)


def set_most_receives(scene: QueueScene, most: int) -> None:
    state(scene)  # the holds that have ended end by the old number
    attributes = {"DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": most}}
    scene.kinesis.update_queue(QueueARN=scene.arn, QueueAttributes=attributes)


@contextmanager
def time_passes(scene: QueueScene) -> Iterator[threading.Event]:
    """Move the clock while receives wait, so that one that finds nothing ends at once.

    Yields what makes time stand still: `clear`.
    """
    moves, over = threading.Event(), threading.Event()
    moves.set()

    def move() -> None:
        while not over.wait(0.005):
            if moves.is_set() and queue_of(scene).polls:
                scene.clock.advance(1000)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield moves
    finally:
        over.set()
        thread.join()


@contextmanager
def process_of(scene: QueueScene, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on the queue in a process, beside a terminal for its questions."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "queues", *words, *place_of(scene)],
        stdin=its,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(its)


def read_until(process: subprocess.Popen[bytes], text: str) -> str:
    """Return what a process has said on stderr up to a text."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        some = os.read(process.stderr.fileno(), 4096).decode()
        assert some, said
        said += some
    return said
