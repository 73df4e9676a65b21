"""Prints ``docs/commands.md``: the help of each command, with an example.

python -m tests.unit.cli.commands_page > docs/commands.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer.main

from sparkinesis.cli.app import app
from tests.command import call, commands

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"

EXAMPLES = {
    "init": "sparkinesis init first --stream flights",
    "run": "sparkinesis run app:app --log text",
    "leases": "sparkinesis leases flights-app --stream flights --watch-for 1",
    "top": "sparkinesis top flights-app --stream flights --once",
    "ui": "sparkinesis ui flights-app --stream flights --port 0",
    "doctor": "sparkinesis doctor flights-app --stream flights --json",
    "exporter": "sparkinesis exporter flights-app --stream flights --http :0",
    "reset": "sparkinesis reset flights-app --stream flights --to latest --yes",
    "restart": "sparkinesis restart flights-app",
    "convert-leases": "sparkinesis convert-leases flights-app --to several --stream flights "
    "--failover-time 1 --dry-run",
    "dead-letters": "sparkinesis dead-letters dead-letters/ --show",
    "kclpy": "sparkinesis kclpy sample.properties",
    "tail": "sparkinesis tail flights --from 10m --once --json | sparkinesis put copy --json",
    "put": "sparkinesis put flights --key-field id < flights.jsonl",
    "shards": "sparkinesis shards flights",
    "queues list": "sparkinesis queues list",
    "queues describe": "sparkinesis queues describe orders --json",
    "queues create": "sparkinesis queues create returns --stream events --max-receive-count 10",
    "queues update": "sparkinesis queues update orders --visibility-timeout 60",
    "queues delete": "sparkinesis queues delete old-orders --yes",
    "queues tail": "sparkinesis queues tail orders --count 1 --json",
    "queues dead-letters": "sparkinesis queues dead-letters orders --key LH-400 --count 1 "
    "--restore --yes",
    "local": "sparkinesis local --port 0 --streams flights:4",
    "compile-pyspark": "sparkinesis compile-pyspark --spark-home spark",
}
"""A line for each command, which `tests/integration/cli/test_examples.py` runs."""

SERVING = ("run", "ui", "exporter", "local")
"""The commands whose examples run until Ctrl-C."""

_INTRODUCTION = """\
# Commands

<!-- the shell blocks of this page are run by tests/integration/cli/test_examples.py -->

`sparkinesis COMMAND --help` (or `-h`) prints the texts below. The pages that are linked there say
more.

Commands find region, credentials and endpoint as boto3 does, or by the options below "Where".
Those that print objects with `--json` print one a line. Exit code 1 is an error, which is one line
on stderr, leases that could not be moved, records that could not be put, or what `doctor`
or `tail --check-order` found; 2 is a wrong option or argument. A command whose output is no longer
read, as before `| head`, ends quietly.

A shell completes commands, options, and the names of applications, streams and profiles, for
which it asks DynamoDB and Kinesis for at most a second:

<!-- not run: changes the files of the shell -->
```shell
sparkinesis --install-completion    # for bash, zsh, fish or PowerShell, whichever runs
sparkinesis --show-completion zsh   # the script, for a file of your own
```
"""

_PAGES = {
    "init": "testing.md",
    "run": "running.md",
    "leases": "operating.md#leases-and-lag",
    "top": "operating.md#watching-live",
    "ui": "page.md",
    "doctor": "operating.md#what-is-wrong",
    "exporter": "operating.md#watching-from-outside",
    "reset": "operating.md#moving-an-application",
    "restart": "operating.md#restarting-stopped-shards",
    "convert-leases": "operating.md#from-one-stream-to-several-and-back",
    "dead-letters": "operating.md#dead-letters",
    "queues tail": "queues.md#looking-at-records",
    "queues dead-letters": "queues.md#dead-letters-of-the-queue",
    "kclpy": "kclpy.md",
    "local": "local-server.md",
    "compile-pyspark": "cluster.md",
}


def page() -> str:
    """The page, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    panels: dict[str, list[list[str]]] = {}
    top = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words, _ in commands():
        panels.setdefault(top[words[0]].rich_help_panel, []).append(words)
    for panel, pages in panels.items():
        yield f"## {panel}\n"
        for words in pages:
            yield from _command(words)


def _command(words: list[str]) -> Iterator[str]:
    name = " ".join(words)
    yield f"### {name}\n"
    yield f"```text\n{call(*words, '--help').stdout.rstrip()}\n```\n"
    if name in EXAMPLES:
        yield f"```shell\n{EXAMPLES[name]}\n```\n"
    if name in _PAGES:
        yield f"See [{_PAGES[name]}]({_PAGES[name]}).\n"


if __name__ == "__main__":
    print(page(), end="")
