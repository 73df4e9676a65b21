"""The thread that looks at an application for all browsers, and what workers report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.status import (
    Failure,
    FleetShard,
    FleetState,
    FleetStatus,
    ShardState,
    WorkerState,
    WorkerStatus,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View
from sparkinesis.ui.watcher import (
    NOTHING_REPORTED,
    StatusReply,
    Watcher,
    of_answers,
    of_fleet,
    read_status,
    shard_rates,
    status_url,
)

FAILURE = Failure("f1", "process_records of s-1", "ValueError: odd", "Traceback ...", 2, ("s-1",))


def status(worker: str, **given: object) -> bytes:
    return json.dumps({"worker": worker, **given}).encode()


def test_a_status_may_hold_more_than_the_page_shows() -> None:
    says = read_status(
        status(
            "w",
            shards=[{"lease": "s-1", "records": 7, "state": "processing", "new": [1]}],
            failures=[
                {
                    "fingerprint": "f1", "what": "x", "error": "E", "traceback": "T", "count": 1,
                    "shard_ids": ["s-1"],
                }
            ],
            extra={},
        )
    )  # fmt: skip
    assert [(one.lease, one.records) for one in says.shards] == [("s-1", 7)]
    assert says.failures == (Failure("f1", "x", "E", "T", 1, ("s-1",)),)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"worker": 1}', b"\xff"])
def test_other_answers_are_no_status(text: bytes) -> None:
    with pytest.raises(ValueError, match="no worker's status"):
        read_status(text)


def test_rates_of_shards() -> None:
    """s-2 was lost and taken again, s-3 is new: its records are of an unknown time."""
    before, after = {"s-1": 100, "s-2": 50, "gone": 1}, {"s-1": 140, "s-2": 10, "s-3": 9}
    assert shard_rates(before, after, 4.0) == {"s-1": 10.0, "s-2": 2.5}
    assert shard_rates(before, after, 0.0) == {}


def test_answers_of_workers() -> None:
    one = read_status(status("a", problem="the lease table was deleted"))
    two = read_status(status("b", streams=[{"stream": "web", "problem": "not found"}]))
    found = of_answers(
        [
            StatusReply("http://a/status", one, {"s-1": 3.0, "s-2": 4.0}),
            StatusReply("http://b/status", two),
            StatusReply("http://c/status", None, error="refused"),
        ]
    )
    assert found.worker_rates == {"a": 7.0, "b": None}
    assert found.shard_rates == {"s-1": 3.0, "s-2": 4.0}
    assert found.messages == (
        "a: the lease table was deleted",
        "b: not found",
        "The worker at http://c/status does not tell its status: refused.",
    )


def test_a_failure_of_two_workers_is_one() -> None:
    failed = [{name: getattr(FAILURE, name) for name in Failure.__struct_fields__}]
    says = [StatusReply(url, read_status(status(url, failures=failed))) for url in "ab"]
    (failure,) = of_answers(says).failures
    assert (failure.count, failure.traceback) == (4, "Traceback ...")


def test_a_fleet() -> None:
    worker = WorkerStatus("w", WorkerState.RUNNING, "host", 1, 1, 10, 2.5, 100, 0.1)
    shard = FleetShard("s-1", "w", ShardState.PROCESSING, 100, 10, 2.5, None, "web", "k:s-1")
    found = of_fleet(
        FleetStatus(
            "app", "web", FleetState.RUNNING, 2, (worker,), (shard,), (FAILURE,),
            ("older", "newer"),
            error="no driver", waiting=1,
        )
    )  # fmt: skip
    assert found.worker_rates == {"w": 2.5}
    assert found.shard_rates == {"k:s-1": 2.5}
    assert found.worker_notes == {"w": "running"}
    assert found.failures == (FAILURE,)
    assert found.messages == (
        "The fleet has failed: no driver",
        "1 of 2 workers wait for Spark to start.",
        "newer",
        "older",
    )


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:9400", "http://127.0.0.1:9400/status"),
        ("worker-3:9400", "http://worker-3:9400/status"),
        ("https://worker-3/status", "https://worker-3/status"),
        ("http://[::1]:9400/", "http://[::1]:9400/status"),
    ],
)
def test_the_address_of_a_worker(given: str, url: str) -> None:
    assert status_url(given) == url


@pytest.mark.parametrize(
    "given", ["", "ftp://x", "http://", "http://a/metrics", "http://u:p@a", "http://a:port", "//"]
)
def test_no_address_of_a_worker(given: str) -> None:
    with pytest.raises(OptionError, match="--worker is"):
        status_url(given)


STREAM = StreamIdentifier("1", "web", 1)
SHARD = Shard("shardId-000000000000", (), True, (0, 9), "1")


class Monitor:
    """A monitor of an application without leases, whose stream can be listed."""

    snapshot = ApplicationSnapshot.of(WatchedTable(), {})
    view = View("app", "", "KB/s")

    def refresh(self) -> None:
        pass

    def client_of(self, stream: object) -> Any:
        return self

    def list_shards(self) -> Any:
        return [SHARD], 0


def test_a_stream_is_listed_while_its_map_is_shown_and_forgotten_after() -> None:
    now = 0.0
    monitor: Any = Monitor()
    watcher = Watcher(monitor, lambda: NOTHING_REPORTED, 1.0, clock=lambda: now)
    watcher.show_map_of(STREAM)
    watcher._take_snapshot()
    assert watcher.snapshot.listed == {STREAM: (SHARD,)}
    now = 31.0
    watcher._take_snapshot()
    assert watcher.snapshot.listed == {}
    assert [*watcher._shown_at, *watcher._listed_at] == [], "a page may be open for months"
