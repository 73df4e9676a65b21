"""Makes the pictures of the terminal views of the docs: `python -m tests.page.terminal docs`.

A worker reads a local stream of four shards, one of which is split and one of which a poison record
holds up. The commands run on a pseudo terminal of 100 columns, as a person would see them.
"""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.worker.options import WorkerOptions
from tests.streams import put, split

COLUMNS = 100
VIEWS = {
    "terminal-leases": ("leases", "flights-app", "--stream", "flights"),
    "terminal-shards": ("shards", "flights"),
}
_FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>text {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: \
{char_height}px; line-height: {line_height}px; }} {styles}</style>
<rect fill="#1b2733" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, 16)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's picture of a console without fonts from the network and without a window around it."""


_SPINNER = re.compile(r"(\x1b\[[\d;?]*\w|\r)*[\u2800-\u28ff]")
"""The line of a command that is at work."""


def handle(batch: Any) -> None:
    for record in batch:
        if record.data == b"poison":
            raise ValueError("no flight has this number")


def seen(arguments: Sequence[str], environment: dict[str, str]) -> str:
    """Return what a command writes to a terminal, colours included."""
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("sparkinesis")), *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        said += more
    os.close(ours)
    assert process.wait() == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


def svg(command: Sequence[str], said: str, name: str) -> str:
    """Return the picture of a command and what it has said, without its spinners."""
    lines = [line for line in said.rstrip().splitlines() if not _SPINNER.match(line)]
    texts = [Text.from_ansi(line) for line in lines]
    shown = itertools.dropwhile(lambda text: not text.plain.strip(), texts)
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ " + " ".join(["sparkinesis", *command]), style="bold"))
    console.print(Text("\n").join(shown))
    picture = console.export_svg(title="", code_format=_FORMAT, unique_id=name)
    # Rich cuts off what is below the letters of a line, such as an underscore.
    return re.sub(r' clip-path="url\(#[\w-]+-line-\d+\)"', "", picture).rstrip() + "\n"


def main(folder: Path) -> None:
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis", "eu-west-1")
        kinesis.create_stream(StreamName="flights", ShardCount=4)
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "COLUMNS": str(COLUMNS),
            "TERM": "xterm-256color",
        }
        os.environ.update(environment)
        split(kinesis, "flights", index=0)
        application = Application(
            "flights-app",
            "flights",
            handle,
            "eu-west-1",
            initial_position="trim_horizon",
            worker_id="worker-1",
            options=WorkerOptions(idle_time=0.3),
        )
        worker = application.worker().start()
        try:
            put(kinesis, "flights", [f"flight {number}".encode() for number in range(300)])
            put(kinesis, "flights", [b"poison"])
            time.sleep(20)
            for name, command in VIEWS.items():
                said = seen(command, environment)
                (folder / f"{name}.svg").write_text(svg(command, said, name), "utf-8")
        finally:
            worker.shutdown(10)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
