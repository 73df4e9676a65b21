"""A local Kinesis in a process of its own, filled before it is measured."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from benchmarks import tls
from sparkinesis.local import Clock, LocalServer, ManualClock, system_clock

Fill: TypeAlias = Callable[[Any, ManualClock], None]
"""Puts the records, by a Kinesis client, and turns the server's clock."""


@contextmanager
def filled_server(fill: Fill, *, is_timed: bool = False) -> Iterator[str]:
    """Serve a Kinesis without limits, which ``fill`` has filled, during the block; its URL.

    is_timed: its clock is the machine's, and not one that ``fill`` turns.

    ``fill`` is sent to the server's process, so it must be a function of a module, or a partial.
    """
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    server = spawning.Process(target=_serve, args=(theirs, fill, is_timed), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        server.join()


def _serve(pipe: Connection, fill: Fill, is_timed: bool) -> None:
    clock = ManualClock(1_790_000_000_000)
    serves_by: Clock = system_clock if is_timed else clock
    with LocalServer(limits=False, clock=serves_by, certificate=tls.certificate()) as server:
        fill(server.client("kinesis"), clock)
        pipe.send(server.endpoint_url)
        pipe.recv()
