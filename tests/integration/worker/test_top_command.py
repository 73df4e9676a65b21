"""`sparkinesis top`, beside a worker that runs: once, as JSON, and on a terminal."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import AccessDeniedError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Fault
from sparkinesis.monitor.lags import Lag, LagStreams, lag_client
from sparkinesis.monitor.lease_monitor import LagWatch
from sparkinesis.stream.address import address_of
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.worker.lifecycle.worker import Worker
from tests.command import COMMAND, Command, place_of
from tests.failing import Failing
from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE, Journal
from tests.pace import eventually
from tests.streams import put_at

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
LEAVES_ALTERNATE_SCREEN = "\x1b[?1049l"


@pytest.fixture
def arguments(server: LocalServer, stream: str) -> Callable[..., list[str]]:
    """The command line for the application, which has its stream's name."""

    def make(*options: str, app: str = stream) -> list[str]:
        return [COMMAND, "top", app, *options, *place_of(server)]

    return make


Arguments = Callable[..., list[str]]


@pytest.fixture
def open_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that are killed when the test is over."""
    processes: list[subprocess.Popen[str]] = []

    def start(command: list[str], **given: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, text=True, **given)
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


Open = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def lag_streams(application: Make) -> LagStreams:
    """Reads the lags of the application, whose stream is the only one."""
    client = lag_client(application().address(), give_up_after=3.0)
    return LagStreams(client, address_of, StreamClient)


@pytest.fixture
def behind(application: Make, start: Start, kinesis: Any, stream: str, journal: Journal) -> Worker:
    """A worker that has read a record of the first shard, and checkpoints none.

    It has renewed its leases: a table without rates has no column for them.
    """
    worker = start(application(worker_id="a"))
    put_at(kinesis, stream, b"x")
    journal.wait_for_data(b"x")
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    leases = application().table().leases
    eventually(lambda: all(lease.throughput_kbps is not None for lease in leases()))
    return worker


@pytest.mark.usefixtures("behind")
def test_once(call: Command, run: Command, stream: str) -> None:
    result = run("top", "--stream", stream, "--once")
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.startswith(f"{stream}, stream {stream}: 2 shards (2 held), 1 owner, ")
    assert "every" not in result.stdout, "it is not updated"
    assert lines[2] == ["owner", "shards", "behind", "KB/s"]
    assert lines[3][:2] == ["a", "2"]
    assert " ".join(lines[5]) == "shard owner state checkpoint behind renewed KB/s"
    late, fresh = lines[6:]
    assert late[:4] == [FIRST, "a", "held", "TRIM_HORIZON"]
    assert late[4:6] != ["0.0", "s"]
    assert fresh[:6] == [SECOND, "a", "held", "TRIM_HORIZON", "0.0", "s"]

    without_stream = call("top", "--once")
    assert "lag unknown" in without_stream.stdout.splitlines()[0]


@pytest.mark.usefixtures("behind")
def test_json_look_by_look(arguments: Arguments, open_process: Open, stream: str) -> None:
    """Until Ctrl-C. The worker renews, and tells how much it reads."""
    command = arguments("--stream", stream, "--json", "--interval", "0.5")
    process = open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    watched = []
    while True:
        look = json.loads(process.stdout.readline())
        watched.append(look["watched_seconds"])
        if all(
            one["renewed_seconds_ago"] is not None and one["kilobytes_per_second"] is not None
            for one in look["shards"]
        ):
            break
        assert watched[-1] < PATIENCE
    assert watched[0] == 0
    assert watched == sorted(watched)
    assert look["shards"][0]["millis_behind_latest"] > 0
    assert look["owners"][0]["kilobytes_per_second"] is not None
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (0, "")
    assert all(json.loads(line)["shards"] for line in rest.splitlines())


class Terminal:
    """The far end of a pseudo-terminal, and what was written to it so far."""

    def __init__(self, width: int, height: int) -> None:
        self._ours, self.its = pty.openpty()
        self.resize(width, height)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read_until(self, is_there: Callable[[str], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not is_there(self.text):
            ready, _, _ = select.select([self._ours], [], [], end - time.monotonic())
            assert ready, f"not written within {PATIENCE} s; this was: {self.text!r}"
            self.text += self._decoder.decode(os.read(self._ours, 65_536))

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.its)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal(100, 30)
    yield opened
    opened.close()


def on_terminal(terminal: Terminal, command: list[str], open_process: Open) -> Any:
    """The process, to whom the pseudo-terminal is its controlling one, as to a shell's."""
    plain = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    take_terminal = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return open_process(
        [sys.executable, "-c", take_terminal, *command],
        stdin=terminal.its,
        stdout=terminal.its,
        stderr=terminal.its,
        start_new_session=True,
        env={**plain, "TERM": "xterm-256color"},
    )


def test_a_terminal_is_updated_in_place_until_ctrl_c(
    behind: Worker, arguments: Arguments, terminal: Terminal, open_process: Open, stream: str
) -> None:
    command = arguments("--stream", stream, "--interval", "0.5")
    process = on_terminal(terminal, command, open_process)
    headline = f"{stream}, stream {stream}"
    # Lag grows while nothing is checkpointed.
    terminal.read_until(lambda text: text.count(headline) >= 3)
    seen = set(re.findall(r" +(\d+\.\d) s", terminal.text))
    assert len(seen) > 1
    behind.shutdown(20)
    terminal.read_until(lambda text: "2 unowned" in text)
    terminal.press_ctrl_c()
    # The last view is left behind; a read may give a part of it.
    terminal.read_until(lambda text: "2 unowned" in text.partition(LEAVES_ALTERNATE_SCREEN)[2])
    assert process.wait(PATIENCE) == 0
    during, _, after = terminal.text.partition(LEAVES_ALTERNATE_SCREEN)
    assert during.count("\x1b[?1049h") == 1
    assert during.count("\x1b[H") >= 3, "each view begins at the top"
    assert "\x1b[2J" not in during, "nothing is wiped in between"
    assert headline in after
    assert "Traceback" not in terminal.text
    assert "\x1b[?25h" in terminal.text, "the cursor is shown again"


@pytest.mark.usefixtures("behind")
def test_off_a_terminal_it_tells_in_a_line(
    arguments: Arguments, open_process: Open, stream: str
) -> None:
    command = arguments("--stream", stream, "--interval", "0.5")
    process = open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(f"{stream}, stream {stream}: updated every ")
    assert "; 2 shards (2 held), 1 owner, " in line
    assert "\x1b" not in line
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[1] == ""
    assert process.returncode == 0


def test_each_shard_is_asked_about_at_its_pace_and_again_after_trouble(
    scene: Scene, lag_streams: LagStreams, table: LeaseTable
) -> None:
    """A lag stays as it was while asking fails; a slow shard keeps no other waiting."""
    scene.put(b"x")
    leases = table.leases()
    every = 0.5
    scene.faults(Fault(delay_ms=30_000), operation="GetRecords", stream=scene.stream, shard=SECOND)

    def count() -> int:
        return scene.server.kinesis.calls.count("GetRecords", stream=scene.stream, shard=FIRST)

    with LagWatch(lag_streams, every=every) as watch:
        watch.ask_for(leases)
        end = time.monotonic() + PATIENCE
        began = time.monotonic()
        while count() < 4:
            assert time.monotonic() < end
            known = watch.known(0.05)
            watch.ask_for(leases)
        took = time.monotonic() - began
        assert took >= 3 * every
        assert (known[FIRST].millis_behind_latest or 0) > 0
        assert SECOND not in known

        refused = Fault.error("InvalidArgumentException", "no reason")
        scene.faults(refused, operation="GetRecords", stream=scene.stream)
        before = count()
        while count() < before + 3:
            assert time.monotonic() < end
            known = watch.known(0.05)
            watch.ask_for(leases)
        assert (known[FIRST].millis_behind_latest or 0) > 0
        watch.ask_for(leases[1:])
        assert FIRST not in watch.known(), "it is forgotten"


def test_lag_leaves_calls_to_the_consumers_of_a_shard(
    scene: Scene, lag_streams: LagStreams, table: LeaseTable
) -> None:
    """One of a kind for each shard; again after half a second, where the service throttles."""
    scene.put(b"x")
    throttle = Fault.error("ProvisionedThroughputExceededException")
    throttled = [
        Failing(operation, throttle, times=2, stream=scene.stream, shard=FIRST)
        for operation in ("GetRecords", "GetShardIterator")
    ]
    scene.faults(lambda call: throttled[0](call) or throttled[1](call))
    with LagWatch(lag_streams) as watch:
        watch.ask_for(table.leases())
        found = watch.known(None)
    assert (found[FIRST].millis_behind_latest or 0) > 0
    assert found[SECOND] == Lag(0)
    for operation in ("GetShardIterator", "GetRecords"):
        calls = scene.server.kinesis.calls
        assert calls.count(operation, stream=scene.stream, shard=FIRST) == 3
        assert calls.peak(operation, stream=scene.stream, shard=FIRST, window_ms=1000) <= 2
        assert calls.count(operation, stream=scene.stream, shard=SECOND) == 1


def test_access_that_is_denied_ends_the_waiting_for_lags(
    scene: Scene, lag_streams: LagStreams, table: LeaseTable
) -> None:
    scene.put(b"x")
    leases = table.leases()
    scene.faults(Fault.error("AccessDeniedException", "not you"), stream=scene.stream)
    with LagWatch(lag_streams) as watch:
        watch.ask_for(leases)
        with pytest.raises(AccessDeniedError, match="not you"):
            watch.known(PATIENCE)
