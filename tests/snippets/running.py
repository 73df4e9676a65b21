"""Runs the blocks of a page, as a reader does who follows it on the local Kinesis.

The blocks run in order, in one folder, which is also what ``/tmp/`` stands for. Where a page does
not start a local Kinesis of its own, it has the one of docs/start: stream ``flights``, four shards.

- A Python block whose first line is ``# name.py`` is a file, which a later command of the page runs
  or imports. Any other is a program.
- A program with PySpark runs in this process and its Spark session. When it waits for its query
  (``awaitTermination``), or ends without doing so, the query processes what there is, and stops.
- A command or program that goes on for ever (`GOES_ON`) is ended by Ctrl-C (SIGINT) as soon as it
  has printed what the page says. If the page does not say what it prints, its first line is enough.
  Until that line comes, records are put: it may begin with those that come after its start.
- What is printed is compared with the page: line by line, where ``...`` in a line stands for
  anything, and a line ``...`` for any lines. Only stdout counts.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.local.command import parse_streams
from sparkinesis.local.encoding.requests import capacity
from tests.command import COMMAND, call
from tests.documents import ROOT, commands
from tests.pace import Deadline
from tests.snippets.collecting import LOCAL, How, Snippet, why_left_out
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGION = "eu-west-1"
ADDRESS = "http://127.0.0.1:4566"
"""The address of the local Kinesis in the pages."""
GOES_ON = re.compile(
    r"^sparkinesis (run|ui|exporter|top|tail)\b(?!.* --(once|count)\b)"
    r"|\.run\(|\.run_async\(|\.batches\(\)|\.records\(\)",
    re.MULTILINE,
)
"""Commands and programs that end only when they are told to."""
_PLAIN = re.compile(r"sparkinesis [^|<>&;$*\\\"]+")
"""A command that needs no shell."""
_EXITS = {0, -signal.SIGINT, 128 + signal.SIGINT}
"""The exit codes after Ctrl-C, of which Python tells by an exception where nobody handles it."""


class PageRun:
    """One run of a page.

    session: returns the Spark session, which is made for the first page that needs it.
    """

    def __init__(
        self,
        page: list[Snippet],
        folder: Path,
        server: LocalServer,
        session: Callable[[], SparkSession],
    ) -> None:
        self._page = page
        self._folder = folder
        self._server = server
        self._session = session
        self._kinesis = server.client("kinesis", REGION)
        self._files: dict[str, str] = {}
        self._used: set[str] = set()
        self._environment = {
            **os.environ,
            "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
        }

    def run(self) -> None:
        for name, size in streams(self._page).items():
            self._kinesis.create_stream(StreamName=name, **size)
        for snippet in self._page:
            if snippet.how is How.RUN:
                self._run(snippet)
        assert self._files.keys() <= self._used, "a file that no command runs"

    def _run(self, snippet: Snippet) -> None:
        text = self._here(snippet.block.text)
        wanted = None if snippet.printed is None else self._here(snippet.printed)
        if snippet.block.language == "python":
            if snippet.file is not None:
                assert wanted is None, f"{snippet} is a file, and prints nothing"
                (self._folder / snippet.file).write_text(text)
                self._files[snippet.file] = text
                self._note_use(text)
                return
            printed = self._program(str(snippet), text, wanted)
        elif snippet.block.language == "sql":
            printed = self._on_spark(str(snippet), f"spark.sql({text!r}).show()")
        else:
            assert snippet.block.language == "shell", f"mark {snippet}: a console block is not run"
            printed = ""
            for line in commands(snippet.block):
                printed += self._command(self._here(line), wanted, printed)
        if wanted is not None:
            assert pattern(wanted).fullmatch(clean(printed)), f"{snippet} printed:\n{printed}"

    def _here(self, text: str) -> str:
        return text.replace("/tmp/", f"{self._folder}/").replace(ADDRESS, self._server.endpoint_url)

    def _note_use(self, text: str) -> None:
        for file in self._files:
            stem = file.removesuffix(".py")
            if re.search(rf"\b{stem}(\.py|:)|^(from|import) {stem}\b", text, re.MULTILINE):
                self._used.add(file)

    def _command(self, line: str, wanted: str | None, before: str) -> str:
        self._note_use(line)
        if why_left_out(line) is not None:
            return ""
        words = shlex.split(line)
        if "$(" in line and words[0] == "export":
            # It sets what its program prints; the shell does not tell if that fails.
            return self._until_end(["bash", "-c", f'test -n "{line.partition("=")[2]}"'])
        if words[0] == "export":
            for pair in words[1:]:
                name, _, value = pair.partition("=")
                assert os.environ.get(name) == value, f"the tests set another {name}"
            return ""
        program = self._files.get(words[1], "") if words[0] == "python" else ""
        if needs_spark(program):
            return self._on_spark(words[1], program)
        if GOES_ON.search(line) or GOES_ON.search(program):
            return self._until_printed(["bash", "-c", f"exec {line}"], wanted, before)
        if _PLAIN.fullmatch(line):
            result = call(*words[1:])
            assert result.returncode == 0, f"{line}:\n{result.stdout}{result.stderr}"
            return result.stdout
        return self._until_end(["bash", "-c", f"set -o pipefail; {line}"])

    def _program(self, name: str, text: str, wanted: str | None) -> str:
        if needs_spark(text):
            return self._on_spark(name, text)
        file = self._folder / "program.py"
        file.write_text(text)
        command = [sys.executable, str(file)]
        if GOES_ON.search(text):
            return self._until_printed(command, wanted)
        return self._until_end(command)

    def _until_end(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _until_printed(self, command: list[str], wanted: str | None, before: str = "") -> str:
        """Run until everything is printed that the page says, and end it then."""
        errors = self._folder / "stderr"
        printed = b""
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as process,
        ):
            assert process.stdout is not None
            out = process.stdout.fileno()
            deadline = Deadline(60)
            try:
                while not is_enough(before + printed.decode(), wanted):
                    assert not deadline.has_passed(), failure(command, before, printed, errors)
                    if select.select([out], [], [], 0.5)[0]:
                        more = os.read(out, 65_536)
                        assert more, failure(command, before, printed, errors)
                        printed += more
                    elif wanted is None:
                        self._put_a_record()
                process.send_signal(signal.SIGINT)
                while more := os.read(out, 65_536):
                    printed += more
                assert process.wait() in _EXITS, failure(command, before, printed, errors)
            finally:
                process.kill()
        return printed.decode()

    def _put_a_record(self) -> None:
        for name in self._kinesis.list_streams()["StreamNames"]:
            put(self._kinesis, name, [b"first"])

    def _on_spark(self, name: str, text: str) -> str:
        """Run a program in this process; return what it prints."""
        from pyspark.sql.streaming.query import StreamingQuery  # noqa: PLC0415 - few pages need it

        spark = self._session()
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            if "availableNow" not in text:
                patch.setattr(StreamingQuery, "awaitTermination", process_and_stop)
            exec(compile(text, name, "exec"), {"__name__": "__main__", "spark": spark})
        for query in spark.streams.active:
            process_and_stop(query)
        return printed.getvalue()


def process_and_stop(query: Any) -> None:
    query.processAllAvailable()
    query.stop()


def streams(page: list[Snippet]) -> Mapping[str, dict[str, Any]]:
    """Return the streams of a page's local Kinesis, with their capacity."""
    shell = [each.block for each in page if each.block.language == "shell"]
    for line in itertools.chain.from_iterable(map(commands, shell)):
        if line.startswith(LOCAL) and (found := re.search(r"--streams (\S+)", line)):
            return {name: capacity(size) for name, size in parse_streams(found[1]).items()}
    return {"flights": capacity(4)}


def needs_spark(text: str) -> bool:
    return re.search(r"^(from|import) pyspark\b", text, re.MULTILINE) is not None


def is_enough(printed: str, wanted: str | None) -> bool:
    """Return True if a program that goes on has printed what the page says, or else a line."""
    if wanted is None:
        return "\n" in printed
    return pattern(wanted).fullmatch(clean(printed)) is not None


def clean(printed: str) -> str:
    """Return lines without the blanks at their ends, which tables have."""
    return re.sub(r" +$", "", printed, flags=re.MULTILINE)


def pattern(wanted: str) -> re.Pattern[str]:
    """Return the pattern of what a page says is printed."""

    def of_line(line: str) -> str:
        if line.strip() == "...":
            return "(?:.*\n)*"
        return ".*".join(map(re.escape, line.rstrip().split("..."))) + "\n"

    return re.compile("".join(map(of_line, wanted.splitlines())))


def failure(command: list[str], before: str, printed: bytes, errors: Path) -> str:
    return f"{command}:\n{before}{printed.decode()}\n{errors.read_text()[-5000:]}"
