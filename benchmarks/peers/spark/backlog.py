"""Backlogs into a no-op sink: rows a second, and CPU seconds of the server, the JVM and Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.peers.spark.competitors import Competitor
from benchmarks.peers.spark.query import Task
from benchmarks.peers.spark.records import SHARDS, Backlog, fill
from benchmarks.peers.spark.rounds import Measured, Runs, alternating
from benchmarks.peers.spark.running import QueryFailedError, running
from benchmarks.peers.spark.server import Server, serving

WARM = "warm"
STREAM = "backlog"
WARM_PART = 0.05


def measure(
    competitors: Sequence[Competitor],
    backlog: Backlog,
    columns: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
) -> Runs:
    """columns: those that the queries read; () means all."""
    warm = backlog.scaled(WARM_PART)
    with serving(limits=False) as server:
        say(f"backlog {backlog.title}: putting {backlog.rows:,} rows")
        fill(server.client, WARM, warm)
        fill(server.client, STREAM, backlog)
        return alternating(
            competitors,
            rounds,
            lambda each: _round(each, task_of(each, server, backlog, warm, columns)),
            lambda text: say(f"backlog {backlog.title}: {text}"),
        )


def task_of(
    competitor: Competitor, server: Server, backlog: Backlog, warm: Backlog, columns: Sequence[str]
) -> Task:
    """What a competitor's query is told."""
    record_bytes = backlog.size * backlog.per_aggregate

    def options(stream: str, rows: int) -> dict[str, str]:
        return {
            **competitor.options(server.endpoint, stream),
            **competitor.backlog_options(rows // SHARDS, record_bytes, columns),
        }

    return Task(
        competitor.data_source,
        competitor.session(),
        options(STREAM, backlog.rows),
        backlog.rows,
        options(WARM, warm.rows),
        warm.rows,
        columns=() if competitor.names_columns else columns,
        server=server.pid,
    )


def _round(competitor: Competitor, task: Task) -> Measured:
    with running(competitor, task) as query:
        told = query.next()
    if told is None:
        raise QueryFailedError("no answer")
    if told["rows"] != task.rows:
        raise QueryFailedError(f"{told['rows']:,} rows came out of {task.rows:,}")
    return {
        "rows/s": told["rows"] / told["batch_seconds"],
        "rows/s with the start": told["rows"] / told["seconds"],
        "CPU s": told["jvm"] + told["python"],
        "CPU s of the JVM": told["jvm"],
        "CPU s of Python": told["python"],
        "CPU s of the server": told["server"],
    }
