"""The thread that looks at an application for all browsers."""

from __future__ import annotations

from typing import Any

from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View
from sparkinesis.ui.reported import NOTHING_REPORTED
from sparkinesis.ui.watcher import Watcher

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
