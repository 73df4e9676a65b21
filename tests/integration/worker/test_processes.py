"""Workers in processes of their own: real programs, real kills, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis.application import Application
from sparkinesis.errors import OptionError, ProcessorError, SparkinesisError
from sparkinesis.local import LocalServer
from tests import pace
from tests.answering import get
from tests.integration.worker.process_session import MODULE, Program, members
from tests.pace import eventually
from tests.streams import put

DATA = [f"key-{n % 7}:{n // 7}".encode() for n in range(70)]


def test_two_processes_share_the_shards_and_sigterm_ends_them_gracefully(
    program: Program, kinesis: Any, application: Callable[..., Application]
) -> None:
    put(kinesis, program.stream, DATA)
    program.start()
    eventually(lambda: len(program.by_process("initialize")) == 2)
    eventually(lambda: program.processed() == set(DATA))
    assert set(program.by_process("initialize")) == set(program.workers())
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait() == 0, program.said()
    ended = program.by_process("shutdown_requested")
    assert set().union(*ended.values()) == {"shardId-000000000000", "shardId-000000000001"}
    assert {lease.owner for lease in application().table().leases()} == {None}
    eventually(lambda: not program.left())


def test_ctrl_c_in_a_terminal_is_one_graceful_shutdown(program: Program, kinesis: Any) -> None:
    """The terminal sends SIGINT to all processes; the workers are told by their supervisor."""
    put(kinesis, program.stream, DATA)
    program.start()
    eventually(lambda: program.processed() == set(DATA))
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait() == 0, program.said()
    assert "KeyboardInterrupt" not in program.said()
    assert "in time" not in program.said()
    assert program.by_process("shutdown_requested")


def test_ctrl_c_does_not_disturb_a_process_that_has_just_begun(program: Program) -> None:
    """Also the first one, before which multiprocessing starts a process of its own."""
    program.start(processes=1)
    eventually(program.workers)
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait() == 0, program.said()
    assert "KeyboardInterrupt" not in program.said()


def test_a_process_that_is_killed_is_replaced_and_the_log_says_why(
    program: Program, kinesis: Any
) -> None:
    put(kinesis, program.stream, DATA[:35])
    program.start()
    eventually(lambda: len(program.by_process("initialize")) == 2)
    before = program.workers()
    os.kill(before[0], signal.SIGKILL)
    put(kinesis, program.stream, DATA[35:])
    eventually(lambda: program.processed() == set(DATA))
    eventually(lambda: len(program.workers()) == 2)
    assert before[0] not in program.workers()
    assert before[1] in program.workers()
    said = f"pid {before[0]}) was killed by SIGKILL"
    assert said in program.said()


def counted(url: str) -> dict[str, float]:
    """The records that each worker has counted, by the supervisor's page."""
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(get(f"{url}/metrics")[1])
        for sample in family.samples
        if sample.name == "sparkinesis_records_processed_total"
    }


def test_one_page_tells_of_all_processes_also_of_one_that_has_died(
    program: Program, kinesis: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    program.start(options={"http": url.removeprefix("http://")}, worker_id="one")

    def status() -> Any:
        return json.loads(get(f"{url}/status")[1])

    eventually(lambda: len(program.by_process("initialize")) == 2)
    put(kinesis, program.stream, DATA)  # each worker has a shard, and counts records of its own
    eventually(lambda: program.processed() == set(DATA))
    eventually(lambda: status()["records"] == len(DATA))
    eventually(lambda: sum(counted(url).values()) == len(DATA))
    assert {get(f"{url}{path}")[0] for path in ("/livez", "/readyz")} == {200}
    found = status()
    workers = {each["pid"]: each for each in found["workers"]}
    assert sorted(workers) == sorted(program.workers())
    assert (
        {each["worker_id"] for each in workers.values()} == {"one-1", "one-2"} == set(counted(url))
    )
    assert {each["state"] for each in workers.values()} == {"running"}
    assert (found["wanted"], found["waiting"], found["lost_workers"]) == (2, 0, 0)
    assert {each["worker_id"] for each in found["shards"]} == {"one-1", "one-2"}

    dead = next(iter(workers))
    os.kill(dead, signal.SIGKILL)
    eventually(
        lambda: any(f"pid {dead}) was killed by SIGKILL" in one for one in status()["notes"])
    )
    eventually(lambda: len(status()["workers"]) == 2 and status()["waiting"] == 0)
    # The figures of the dead process stay, and those of its successor of the same name are new.
    assert (status()["records"], status()["lost_workers"]) == (len(DATA), 1)
    put(kinesis, program.stream, [b"key-0:100"])
    eventually(lambda: status()["records"] >= len(DATA) + 1)
    assert (
        f'sparkinesis_fleet_restarts_total{{application="{program.stream}"}} 1.0'
        in get(f"{url}/metrics")[1]
    )
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait() == 0


def test_a_second_signal_ends_all_at_once_though_a_processor_hangs(
    program: Program, kinesis: Any, application: Callable[..., Application]
) -> None:
    commanded = f"{MODULE}:Commanded"
    put(kinesis, program.stream, [b"hang"])
    program.start(processor=commanded, options={"shutdown_timeout": 1000})
    eventually(lambda: program.processed() == {b"hang"})
    os.kill(program.pid, signal.SIGTERM)
    eventually(lambda: "Received SIGTERM" in program.said())
    os.kill(program.pid, signal.SIGINT)
    assert program.wait() == 0, program.said()
    assert {lease.owner for lease in application().table().leases()} == {None}
    eventually(lambda: not program.left())


def test_without_their_supervisor_the_workers_end_gracefully(
    program: Program, kinesis: Any, application: Callable[..., Application]
) -> None:
    put(kinesis, program.stream, DATA)
    program.start()
    eventually(lambda: program.processed() == set(DATA))
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    eventually(lambda: not program.left())
    assert program.by_process("shutdown_requested")
    assert {lease.owner for lease in application().table().leases()} == {None}


class Local:
    """A class of which no instance is pickled by name."""


def not_at_the_top() -> Callable[[Any], None]:
    return lambda batch: None


HERE = "tests.integration.worker.test_processes"


@pytest.mark.parametrize(
    ("given", "processes", "kind", "match"),
    [
        *(
            ({}, wrong, OptionError, "^processes is .*'auto'.*whole number of at least 1")
            for wrong in (0, -1, "two", True, 1.5)
        ),
        (
            {"processor": not_at_the_top()},
            2,
            ProcessorError,
            r"cannot be sent to worker processes: .*<lambda>.*processor=\"package.module:name\"",
        ),
        ({"stream": "no-such-stream"}, 2, SparkinesisError, "no-such-stream"),
    ],
)
def test_bad_input_is_told_before_any_process_starts(
    application: Callable[..., Application],
    given: dict[str, Any],
    processes: Any,
    kind: type[Exception],
    match: str,
) -> None:
    given = {"processor": f"{MODULE}:processor", **given}
    with pytest.raises(kind, match=match):
        application(**given).run(processes=processes)
    assert members(os.getpid()) == [] or children(os.getpid()) == []


def test_a_port_in_use_is_told_before_anything_is_called(
    application: Callable[..., Application], server: LocalServer, dynamodb: Any
) -> None:
    taken = application({"http": server.endpoint_url.removeprefix("http://")})
    named = replace(taken, processor=f"{MODULE}:processor")
    with pytest.raises(OptionError, match="cannot listen there: Address already in use"):
        named.run(processes=2)
    assert named.name not in dynamodb.list_tables()["TableNames"]


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_spark_and_processes_are_refused_together(application: Callable[..., Application]) -> None:
    run: Any = application(processor=f"{MODULE}:processor").run
    with pytest.raises(OptionError, match="spark and processes"):
        run(object(), 2, processes=2)


def test_a_program_without_the_guard_is_told_once(server: LocalServer, tmp_path: Path) -> None:
    """Each of its processes would start as many again."""
    server.client("kinesis").create_stream(StreamName=tmp_path.name, ShardCount=1)
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from sparkinesis import Application\n"
        f"Application({tmp_path.name!r}, {tmp_path.name!r}, '{MODULE}:processor',\n"
        f"    region='us-east-1', endpoint={server.endpoint_url!r}).run(processes=2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count('if __name__ == "__main__":') == 1, done.stderr
    assert done.stderr.count("Traceback") == 1
    assert time.monotonic() - began < pace.seconds(30)
