"""`sparkinesis run`: gets the signals that systemd, Kubernetes and a terminal send."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from tests import command, pace
from tests.answering import get
from tests.command import COMMAND, failure
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene
from tests.journal import PATIENCE
from tests.pace import eventually

APP = """
import logging
import os
import threading

from sparkinesis import Application, WorkerOptions


def handle(batch):
    with open("processed", "a") as file:
        for record in batch:
            file.write(record.data.decode() + "\\n")
    logging.getLogger("app").info("%d records", len(batch))
    logging.getLogger("app").debug("more than a log of INFO has")
    if b"stuck" in [record.data for record in batch]:
        threading.Event().wait()


app = Application(
    "{stream}", "{stream}", handle, "us-east-1", "{endpoint}", initial_position="trim_horizon",
    options=WorkerOptions(failover_time={failover}, idle_time=0.25, shutdown_timeout=1000),
)
other = 1
"""


class Running:
    """A `sparkinesis run` in a directory with app.py."""

    def __init__(self, folder: Path, *arguments: str, **given: Any) -> None:
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "run", "app:app", *arguments], cwd=folder, **{"stderr": log, **given}
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """The log's lines, each of which is JSON."""
        return [json.loads(line) for line in self.log.splitlines()]

    def wait_for(self, text: str, count: int = 1) -> None:
        eventually(lambda: self.log.count(text) >= count or self._fail())

    def _fail(self) -> bool:
        assert self.process.poll() is None, self.log
        return False

    def end(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def folder(tmp_path: Path, server: LocalServer, stream: str) -> Path:
    text = APP.format(stream=stream, endpoint=server.endpoint_url, failover=pace.seconds(2.0))
    (tmp_path / "app.py").write_text(text)
    (tmp_path / "processed").touch()
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    """Starts the command; it is killed when the test is over."""
    started: list[Running] = []

    def run(*arguments: str, **given: Any) -> Running:
        started.append(Running(folder, *arguments, **given))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.wait()


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def processed(folder: Path) -> list[str]:
    return (folder / "processed").read_text().split()


def test_sigterm_ends_it_gracefully_and_each_line_of_its_log_is_json(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    last = scene.put(b"one")
    running = start()
    eventually(lambda: processed(folder) == ["one"])
    assert running.end(signal.SIGTERM) == 0
    assert scene.owners() == {FIRST: None, SECOND: None}
    assert scene.row().checkpoint.sequence_number == last
    lines = running.lines()
    (mine,) = [line for line in lines if line["logger"] == "app"]
    assert (mine["message"], mine["level"]) == ("1 records", "INFO")
    assert (mine["application"], mine["shard"]) == (scene.stream, FIRST)
    events = [line["event"] for line in lines if "event" in line]
    assert events[-1] == "WorkerEnded"
    assert "LeaseTaken" in events
    assert len({line["worker"] for line in lines if "worker" in line}) == 1
    (received,) = [line for line in lines if line["message"].startswith("Received SIGTERM")]
    assert received["worker"] == mine["worker"]


def test_processes_end_with_it_and_each_line_of_all_logs_is_json(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    """systemd sends SIGTERM to all processes of a unit."""
    for n in range(10):
        scene.put(b"%d" % n)
        scene.put(b"%d" % (10 + n), UPPER)
    running = start("--processes", "2", start_new_session=True)
    eventually(lambda: len(processed(folder)) == 20)
    eventually(lambda: len({*scene.owners().values()} - {None}) == 2)
    os.killpg(running.process.pid, signal.SIGTERM)
    assert running.process.wait(PATIENCE) == 0, running.log
    assert sorted(processed(folder), key=int) == [str(n) for n in range(20)]
    assert scene.owners() == {FIRST: None, SECOND: None}
    workers = {line["worker"] for line in running.lines() if line.get("event") == "WorkerEnded"}
    assert len(workers) == 2
    assert {line["worker"] for line in running.lines() if line["logger"] == "app"} <= workers
    eventually(lambda: not is_group_alive(running.process.pid))


def test_a_second_sigterm_ends_it_at_once_and_releases_its_leases(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    scene.put(b"stuck")
    running = start()
    eventually(lambda: processed(folder) == ["stuck"])
    running.process.send_signal(signal.SIGTERM)
    running.wait_for("Received SIGTERM")
    assert running.end(signal.SIGTERM) == 0  # long before shutdown_timeout
    assert "Received SIGTERM again" in running.log
    assert scene.owners() == {FIRST: None, SECOND: None}


def test_what_a_killed_one_had_not_checkpointed_comes_again(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    scene.put(b"before")
    running = start()
    eventually(lambda: processed(folder) == ["before"])
    eventually(lambda: not scene.row().checkpoint.is_sentinel)
    scene.put(b"stuck")
    eventually(lambda: "stuck" in processed(folder))
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    scene.put(b"after", UPPER)
    start()
    eventually(lambda: sorted(processed(folder)) == ["after", "before", "stuck", "stuck"])


@pytest.mark.parametrize("arguments", [[], ["--reload"]], ids=str)
def test_a_signal_while_the_module_is_imported(
    folder: Path, start: Callable[..., Running], arguments: list[str]
) -> None:
    """As process 1 of a container it would go unheard, had Python no handler yet."""
    os.mkfifo(folder / "begun")
    text = "import threading\nopen('begun', 'w').close()\nthreading.Event().wait()\n"
    (folder / "app.py").write_text(text)
    running = start(*arguments)
    (folder / "begun").read_text()
    assert running.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert running.log == ""


def test_probes(scene: Scene, start: Callable[..., Running]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = start("--http", f":{port}")
    running.wait_for("has started")
    url = f"http://127.0.0.1:{port}"
    assert get(f"{url}/livez")[0] == 200
    eventually(lambda: get(f"{url}/readyz")[0] == 200)
    assert json.loads(get(f"{url}/status")[1])["application"] == scene.stream
    assert running.end(signal.SIGTERM) == 0


def test_text_on_a_terminal_of_80_columns(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    scene.put(b"one")
    ours, its = pty.openpty()
    running = start(stderr=its, env={**os.environ, "COLUMNS": "80", "TERM": "dumb"})
    os.close(its)
    eventually(lambda: processed(folder) == ["one"])
    running.process.send_signal(signal.SIGINT)
    text = b""
    try:
        while piece := os.read(ours, 10_000):
            text += piece
    except OSError:  # the terminal's end, on Linux
        pass
    finally:
        os.close(ours)
    assert running.process.wait(PATIENCE) == 0
    lines = [line.rstrip() for line in text.decode().splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("app: 1 records") and FIRST in line for line in lines)
    assert "INFO" not in text.decode()
    # A line's text stands beside its time, or beside the time of the line above.
    assert all(line[9:10].strip() for line in lines), lines


def test_a_changed_file_starts_it_again_and_nothing_is_lost(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    running, stop, put = start("--reload"), threading.Event(), 0

    def produce() -> None:
        nonlocal put
        while not stop.is_set():
            scene.put(b"%d" % put)
            put += 1

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        eventually(lambda: len(processed(folder)) > 3)
        code = (folder / "app.py").read_text()
        (folder / "app.py").write_text("import nothing_of_this_name")
        running.wait_for("starts at a change")
        # The traceback begins in the user's module, not in what imports it.
        assert f'imported:\n  File "{folder / "app.py"}", line 1' in running.log
        assert "import nothing_of_this_name\nModuleNotFoundError" in running.log
        (folder / "app.py").write_text(code)
        running.wait_for("app.py has changed", 2)
        seen = len(processed(folder))
        eventually(lambda: len(processed(folder)) > seen)
        (folder / "more.py").write_text("x = 1")
        running.wait_for("more.py has changed")
    finally:
        stop.set()
        producer.join()
    eventually(lambda: str(put - 1) in processed(folder))
    assert running.end(signal.SIGTERM) == 0
    # Each of them was shut down gracefully, and so none comes twice.
    assert processed(folder) == [str(n) for n in range(put)]
    assert scene.owners() == {FIRST: None, SECOND: None}


def test_ctrl_c_on_the_terminal_of_a_reloader_is_one_signal(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    """The terminal sends it to the whole group of the reloader's processes."""
    scene.put(b"one")
    running = start("--reload", "--log-level", "debug", start_new_session=True)
    eventually(lambda: processed(folder) == ["one"])
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.process.wait(PATIENCE) == 0
    assert running.log.count("Received SIGINT") == 1
    assert {line["level"] for line in running.lines()} == {"DEBUG", "INFO"}
    assert not {"botocore", "urllib3"} & {line["logger"].split(".")[0] for line in running.lines()}


def test_an_application_that_ends_itself_is_not_started_again(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    text = """
from sparkinesis import RecordProcessor
class Leaves(RecordProcessor):
    def initialize(self, shard):
        shard.request_shutdown()
    def process_records(self, batch, checkpointer): ...
from dataclasses import replace
app = replace(app, processor=Leaves)
"""
    with (folder / "mailbox.py").open("w") as file:  # as a module of Python's own is called
        file.write((folder / "app.py").read_text() + text)
    (folder / "app.py").write_text("from mailbox import app")
    running = start("--reload", "--log-level", "warning")
    assert running.process.wait(PATIENCE) == 0, running.log
    assert running.log == ""


def test_it_ends_with_its_killed_reloader(
    scene: Scene, folder: Path, start: Callable[..., Running]
) -> None:
    scene.put(b"one")
    running = start("--reload")
    eventually(lambda: processed(folder) == ["one"])
    running.process.kill()
    eventually(lambda: "has ended after" in running.log)
    assert scene.owners() == {FIRST: None, SECOND: None}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["app.py"], "'app.py' does not name an application. Use MODULE:NAME, such as app:app."),
        (["x y:z"], "'x y:z' does not name an application. Use MODULE:NAME"),
        (["nowhere:app"], "There is no module 'nowhere' in "),
        (["json.nowhere:app"], "There is no module 'json.nowhere' in "),
        (["app:other"], "app:other is no Application, but of the type int. Use app:app."),
        (["app:missing"], "app:missing does not exist: the module app has no such name. Use app"),
        (["json"], "json:app does not exist: the module json has no such name. Define one at "),
        (["app", "--http", "9400"], "http is '9400'; it must be an address and a port, such as"),
        (["app", "--http", "{taken}"], "cannot listen there: Address already in use. Choose"),
        (["app", "--master", "local"], "--master is for a fleet on Spark. Add --workers N"),
        (["app", "--", "--conf", "a=b"], "--conf a=b is for a fleet on Spark. Add --workers N"),
        (["app", "--processes", "0"], "processes is '0'; it must be 'auto', for one process "),
        (["app", "--processes", "two"], "processes is 'two'; it must be 'auto', for one process "),
        (["app", "--workers", "2", "--reload"], "--workers runs a fleet on Spark, and --reload "),
    ],
)
def test_bad_input(
    folder: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch, arguments: Any, text: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)  # and take off what the command adds
    monkeypatch.delitem(sys.modules, "app", raising=False)
    taken = server.endpoint_url.removeprefix("http://")
    result = command.call("run", *(one.format(taken=taken) for one in arguments))
    assert text in failure(result), result.stderr


def test_a_stream_that_is_not_there(folder: Path, dynamodb: Any, stream: str) -> None:
    text = (folder / "app.py").read_text().replace(f'"{stream}", handle', '"nowhere", handle')
    (folder / "app.py").write_text(text)
    result = subprocess.run(
        [COMMAND, "run", "app"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "There is no stream 'nowhere' in us-east-1" in failure(result)
    assert stream not in dynamodb.list_tables()["TableNames"]
