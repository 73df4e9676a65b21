"""A replay processes a range of the stream again, beside the running application."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.local.clock import system_clock
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.on_error import Stop
from sparkinesis.worker.processors.processor import ProcessorShard
from tests.integration.worker import ways_process
from tests.integration.worker.conftest import AT_ONCE
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene, checkpoint, told
from tests.integration.worker.test_ways import holding
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import eventually


class BackClock:
    """The system's clock, some hours ago, and what it was moved on by since."""

    def __init__(self) -> None:
        self._ahead_ms = -60 * 3_600_000

    def __call__(self) -> int:
        return system_clock() + self._ahead_ms

    def advance(self, minutes: float) -> datetime:
        """Move it on; return the instant before and after it, in its middle."""
        middle = self() + minutes * 30_000
        self._ahead_ms += round(minutes * 60_000)
        return datetime.fromtimestamp(middle / 1000, timezone.utc)


@pytest.fixture
def clock() -> BackClock:
    return BackClock()


@pytest.fixture
def server(clock: BackClock) -> Iterator[LocalServer]:
    with LocalServer(lease_tables=LeaseTables(), clock=clock, limits=AT_ONCE) as running:
        yield running


@pytest.fixture
def subscription_clock(clock: BackClock) -> Callable[[], float]:
    return lambda: clock() / 1000


@pytest.fixture
def again() -> Journal:
    """What the replay's processors are called with."""
    return Journal()


def tables(scene: Scene) -> list[str]:
    names: list[str] = scene.server.client("dynamodb").list_tables()["TableNames"]
    return names


def live_rows(scene: Scene) -> list[dict[str, Any]]:
    """Return the rows of the live application without what its renewals change."""
    own = {"leaseCounter", "throughputKBps", "checkpointPosition"}
    return [{k: v for k, v in row.items() if k not in own} for row in scene.table.items()]


def replaying(scene: Scene, again: Journal, **given: Any) -> Any:
    return scene.application({}, processor=lambda: Journaling(again, checkpoint), **given).replay


def test_the_records_of_the_range_are_processed_again_and_the_live_application_is_untouched(
    scene: Scene, clock: BackClock, again: Journal
) -> None:
    worker = scene.start(on_records=checkpoint)
    scene.put(b"before")
    since = clock.advance(10)
    inside = [b"%d" % n for n in range(30)]
    for data in inside:
        scene.put(data)
    scene.put(b"other shard", UPPER)
    until = clock.advance(10)
    last = scene.put(b"behind")
    scene.journal.wait_for_data(b"before", *inside, b"behind", b"other shard")
    eventually(lambda: scene.row().checkpoint.sequence_number == last)
    rows, calls = live_rows(scene), len(scene.journal.entries)
    done = replaying(scene, again)(since, until)
    assert (done.records, done.shards, done.is_complete) == (31, 2, True)
    assert done.seconds > 0
    assert again.data(FIRST) == inside
    assert again.data(SECOND) == [b"other shard"]
    for shard in (FIRST, SECOND):
        named = [call for where, call in again.calls() if where == shard]
        assert named[0] == "initialize"
        assert named[-2:] == ["shutdown_requested", "lease_lost"]
    # Of the live application, nothing but its own renewals has happened.
    assert tables(scene) == [scene.stream]
    assert len(scene.journal.entries) == calls
    throttled = {"ProvisionedThroughputExceededException", "LimitExceededException"}
    assert not throttled & {one.error for one in scene.server.kinesis.calls}
    assert live_rows(scene) == rows
    assert len(worker.status()) == 2


def test_shards_that_ended_in_the_range_end_and_their_children_follow(
    scene: Scene, clock: BackClock, again: Journal
) -> None:
    """A shard that is split behind the range does not: its children had no part in it."""
    since = clock.advance(10)
    scene.put(b"parent")
    clock.advance(1)
    scene.split()
    clock.advance(1)
    scene.put(b"child")
    until = clock.advance(10)
    scene.put(b"late child")
    scene.split()
    done = replaying(scene, again)(since, until)
    assert done.is_complete
    assert [data for data in again.data() if data != b"x"] == [b"parent", b"child"]
    ended = [shard for shard, _ in again.calls("shard_ended")]
    assert ended[0] == FIRST
    assert again.entries.index((FIRST, "shard_ended", None)) < next(
        n
        for n, (_, call, batch) in enumerate(again.entries)
        if call == "process_records" and batch.records[0].data == b"child"
    )
    assert b"late child" not in again.data()
    assert tables(scene) == []


def test_until_now_ends_at_the_tip(scene: Scene, clock: BackClock, again: Journal) -> None:
    """Each shard is read until the service says that nothing arrived before then."""
    clock.advance(60 * 60 - 10)
    scene.put(b"1")
    scene.put(b"2", UPPER)
    clock.advance(11)
    done = replaying(scene, again)("trim_horizon")
    assert (done.records, done.shards, done.is_complete) == (2, 2, True)
    assert sorted(again.data()) == [b"1", b"2"]


def test_another_processor_may_be_a_function(scene: Scene, clock: BackClock) -> None:
    found: list[bytes] = []

    def handle(batch: Any) -> None:
        found.extend(record.data for record in batch.records)

    scene.put(b"1")
    until = clock.advance(10)
    done = scene.application(processor=None).replay("trim_horizon", until, processor=handle)
    assert (done.records, found) == (1, [b"1"])


def test_the_table_is_deleted_after_an_error(
    scene: Scene, clock: BackClock, again: Journal
) -> None:
    def refuse(batch: Any, checkpointer: Checkpointer) -> None:
        raise RuntimeError("cannot process it")

    scene.put(b"bad")
    until = clock.advance(10)
    application = scene.application(processor=lambda: Journaling(again, refuse), on_error=Stop())
    with pytest.raises(RuntimeError, match="cannot process it"):
        application.replay("trim_horizon", until)
    assert tables(scene) == []


def test_a_replay_that_is_ended_early_says_so_and_leaves_no_table(
    scene: Scene, clock: BackClock, again: Journal
) -> None:
    """As by SIGTERM, which shuts its worker down the same way."""

    class Leaving(Journaling):
        def process_records(self, batch: Any, checkpointer: Checkpointer) -> None:
            super().process_records(batch, checkpointer)
            self.shard.request_shutdown()

    scene.put(b"1")
    until = clock.advance(10)
    done = scene.application(processor=lambda: Leaving(again)).replay("trim_horizon", until)
    assert (done.records, done.is_complete) == (1, False)
    assert again.calls("shutdown_requested")
    assert tables(scene) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_a_replay_and_only_kill_9_leaves_its_table(
    scene: Scene, clock: BackClock, again: Journal, tmp_path: Path, *, number: signal.Signals
) -> None:
    """It comes in the midst of a batch, which is finished, unless it is kill -9."""
    worker = scene.start(on_records=checkpoint)
    last = scene.put(ways_process.HOLD)
    until = clock.advance(10)
    eventually(lambda: scene.row().checkpoint.sequence_number == last)
    eventually(lambda: None not in scene.owners().values())
    rows = live_rows(scene)
    with holding(scene, "replay", tmp_path) as (process, given, said):
        process.send_signal(number)
        if number != signal.SIGKILL:
            assert said.readline() == "shutting down\n"
            given.close()
            assert said.readline() == "1 False\n"
        code = process.wait(PATIENCE)
    left = [name for name in tables(scene) if name != scene.stream]
    if number == signal.SIGKILL:
        assert len(left) == 1
        assert left[0].startswith(f"{scene.stream}-replay-")
    else:
        assert (code, left) == (0, [])
    assert live_rows(scene) == rows
    assert len(worker.status()) == 2
    # The next replay has a table of its own.
    done = replaying(scene, again)("trim_horizon", until)
    assert (done.records, done.is_complete) == (1, True)
    assert sorted(tables(scene)) == sorted([scene.stream, *left])


def test_a_scan_that_misses_a_child_does_not_end_the_replay(
    scene: Scene, clock: BackClock, again: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan is no snapshot: it may see that a parent has ended, and not the lease made before.

    No child is read before the next scan.
    """
    scene.put(b"parent")
    scene.split()
    scene.put(b"child")
    until = clock.advance(10)
    missed, has_looked_again = threading.Event(), threading.Event()
    scan = LeaseTable.leases

    def leases(table: LeaseTable, *given: Any, **named: Any) -> list[Lease]:
        found = scan(table, *given, **named)
        ended = [lease for lease in found if lease.is_finished]
        if ended and not missed.is_set():
            missed.set()
            return ended
        if missed.is_set():
            has_looked_again.set()
        return found

    monkeypatch.setattr(LeaseTable, "leases", leases)

    def wait_if_child(shard: ProcessorShard) -> None:
        if shard.id not in {FIRST, SECOND}:
            assert has_looked_again.wait(PATIENCE)

    application = scene.application(
        processor=lambda: Journaling(again, checkpoint, on_initialize=wait_if_child)
    )
    done = application.replay("trim_horizon", until)
    assert missed.is_set()
    assert done.is_complete
    assert [data for data in again.data() if data != b"x"] == [b"parent", b"child"]


def test_expired_records_are_told_as_lost(scene: Scene, clock: BackClock, again: Journal) -> None:
    scene.put(b"expired")
    since = clock.advance(1)
    clock.advance(30 * 60)
    scene.put(b"kept")
    until = clock.advance(10)
    replaying(scene, again)(since - timedelta(hours=1), until)
    assert again.data() == [b"kept"]
    assert told(scene.caplog, "Resuming with the oldest record kept")


NOW = datetime.now(timezone.utc)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((NOW, NOW - timedelta(hours=1)), "not before to"),
        ((NOW, NOW), "not before to"),
        ((NOW, NOW + timedelta(hours=1)), "in the future"),
        ((NOW.replace(tzinfo=None),), "from_ is .* no time zone"),
        ((NOW - timedelta(hours=1), NOW.replace(tzinfo=None)), "to is .* no time zone"),
        (("latest",), "from_ is 'latest'; it takes a datetime"),
        (("trim_horizon", 5), "to is 5; it takes a datetime"),
    ],
)
def test_a_range_that_cannot_be_replayed_is_refused(
    scene: Scene, again: Journal, given: tuple[Any, ...], text: str
) -> None:
    before = len(list(scene.server.kinesis.calls))
    with pytest.raises(OptionError, match=text):
        replaying(scene, again)(*given)
    assert len(list(scene.server.kinesis.calls)) == before
    assert tables(scene) == []


def test_what_a_replay_cannot_use_is_refused(scene: Scene) -> None:
    with pytest.raises(OptionError, match="reads several"):
        scene.application(stream=None, streams=[scene.stream]).replay("trim_horizon")
    with pytest.raises(OptionError, match="has no processor"):
        scene.application(processor=None).replay("trim_horizon")
    with pytest.raises(ProcessorError):
        scene.application().replay("trim_horizon", processor=5)  # type: ignore[arg-type]
