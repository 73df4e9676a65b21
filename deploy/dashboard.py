"""Grafana's dashboard, ``grafana/sparkinesis.json``: a row for each thing that people look at.

Made with Grafana's own library for dashboards, so that it keeps their schema, of metrics from the
catalogue, so that it cannot show one that does not exist.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders.common import VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as Chart
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
    VariableSort,
)

from deploy.queries import by, labels, series
from sparkinesis.metrics import catalogue as c
from sparkinesis.metrics.metric import Metric

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
VARIABLES = {
    "application": (c.LEASES_HELD, c.FLEET_WANTED, c.SHARD_LAG, c.QUEUE_IN_HAND),
    "stream": (c.LAG, c.QUERY_LAG_MAX, c.SHARD_LAG),
    "query": (c.QUERY_LAG_MAX,),
    "queue": (c.QUEUE_IN_HAND,),
}
"""The labels by which a reader chooses, and the metrics whose values are offered."""
RATE = "$__rate_interval"
WIDTH, HEIGHT = 8, 8
"""Of a chart; a row of Grafana's is 24 wide."""


@dataclass(frozen=True)
class Line:
    """The lines of one expression, and what each of them is called."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A chart. ``unit``: Grafana's name of it; ``about``: what it shows, for people."""

    title: str
    unit: str
    about: str
    lines: tuple[Line, ...]


def chosen(metric: Metric, suffix: str = "", **matches: str) -> str:
    """Return the series of what the dashboard's variables choose."""
    variables = {one: f"~${one}" for one in VARIABLES if one in labels(metric)}
    return series(metric, suffix, **variables, **matches)


def legend(*names: str) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in names)


def largest(metric: Metric, *grouping: str) -> Line:
    return Line(f"max {by(*grouping, of=metric)} ({chosen(metric)})", legend(*grouping))


def worst(metric: Metric, *grouping: str, count: int = 20) -> Line:
    """The largest ones only: a stream may have thousands of shards."""
    line = largest(metric, *grouping)
    return Line(f"topk({count}, {line.expression})", line.legend)


def total(metric: Metric, *grouping: str) -> Line:
    return Line(f"sum {by(*grouping, of=metric)} ({chosen(metric)})", legend(*grouping))


def rate(metric: Metric, *grouping: str, suffix: str = "", **matches: str) -> Line:
    """Per second."""
    found = f"rate({chosen(metric, suffix, **matches)}[{RATE}])"
    return Line(f"sum {by(*grouping, of=metric)} ({found})", legend(*grouping))


def events(metric: Metric, *grouping: str) -> Line:
    """How many in each step of the chart."""
    found = f"increase({chosen(metric)}[{RATE}])"
    return Line(f"sum {by(*grouping, of=metric)} ({found})", legend(*grouping))


def quantile(share: float, metric: Metric, *grouping: str) -> Line:
    found = f"rate({chosen(metric, '_bucket')}[{RATE}])"
    grouped = by(*grouping, of=metric)[:-1] + (", le)" if grouping else "le)")
    text = legend(*grouping)
    return Line(f"histogram_quantile({share}, sum {grouped} ({found}))", f"{share:.0%} {text}")


def quantiles(metric: Metric, *grouping: str) -> tuple[Line, ...]:
    return quantile(0.5, metric, *grouping), quantile(0.99, metric, *grouping)


def panel(title: str, unit: str, metric: Metric, *lines: Line) -> Panel:
    """Return a chart of one metric, or of more that its help covers."""
    return Panel(title, unit, metric.help, lines)


_WHO = ("application", "stream")
_QUEUE = ("application", "queue")

ROWS: dict[str, tuple[Panel, ...]] = {
    "Lag": (
        panel("Lag of streams", "s", c.LAG, largest(c.LAG, *_WHO)),
        panel("Lag of the worst shards", "s", c.LAG, worst(c.LAG, *_WHO, "shard")),
        panel(
            "Age of the oldest checkpoints",
            "s",
            c.CHECKPOINT_AGE,
            worst(c.CHECKPOINT_AGE, *_WHO, "shard"),
        ),
        panel("Lag by the lease table", "s", c.SHARD_LAG, worst(c.SHARD_LAG, *_WHO, "shard")),
        panel(
            "Shards unread by the lease table",
            "s",
            c.SHARD_UNREAD,
            worst(c.SHARD_UNREAD, *_WHO, "shard"),
        ),
    ),
    "Throughput": (
        panel("Records processed", "cps", c.RECORDS_PROCESSED, rate(c.RECORDS_PROCESSED, *_WHO)),
        panel("Bytes processed", "Bps", c.BYTES_PROCESSED, rate(c.BYTES_PROCESSED, *_WHO)),
        panel(
            "Records per worker", "cps", c.RECORDS_PROCESSED, rate(c.RECORDS_PROCESSED, "worker")
        ),
        panel(
            "Duration of process_records", "s", c.PROCESS_DURATION, *quantiles(c.PROCESS_DURATION)
        ),
        panel(
            "Longest present calls of process_records",
            "s",
            c.PROCESSING_FOR,
            worst(c.PROCESSING_FOR, *_WHO, "shard"),
        ),
        panel("Memory of waiting records", "bytes", c.BYTES_HELD, largest(c.BYTES_HELD, "worker")),
        panel("Rows of sinks", "cps", c.SINK_ROWS, rate(c.SINK_ROWS, *_WHO)),
        panel("Commits of sinks", "s", c.SINK_DURATION, *quantiles(c.SINK_DURATION)),
    ),
    "Failures": (
        panel(
            "Failed batches", "short", c.BATCHES_FAILED, events(c.BATCHES_FAILED, *_WHO, "action")
        ),
        Panel(
            "Records given up",
            "short",
            "User records that on_error stored as dead letters or skipped.",
            (
                Line(events(c.DEAD_LETTERS, *_WHO).expression, f"dead letters {legend(*_WHO)}"),
                Line(events(c.RECORDS_SKIPPED, *_WHO).expression, f"skipped {legend(*_WHO)}"),
            ),
        ),
        panel("Data loss", "short", c.DATA_LOSS, total(c.DATA_LOSS, *_WHO)),
    ),
    "Leases": (
        panel(
            "Leases per worker",
            "short",
            c.LEASES_HELD,
            largest(c.LEASES_HELD, "application", "worker"),
        ),
        panel(
            "Shards without a live worker",
            "short",
            c.LEASES_UNREAD,
            largest(c.LEASES_UNREAD, "application"),
        ),
        panel(
            "Streams that cannot be read",
            "s",
            c.STREAM_UNREADABLE,
            largest(c.STREAM_UNREADABLE, *_WHO),
        ),
        panel("Workers that hold leases", "short", c.WORKERS, largest(c.WORKERS, "application")),
        panel(
            "Leases taken", "short", c.LEASES_TAKEN, events(c.LEASES_TAKEN, "application", "origin")
        ),
        panel(
            "Leases lost", "short", c.LEASES_LOST, events(c.LEASES_LOST, "application", "reason")
        ),
        panel(
            "Leases released",
            "short",
            c.LEASES_RELEASED,
            events(c.LEASES_RELEASED, "application", "reason"),
        ),
        panel(
            "Rounds of renewing", "s", c.RENEWAL_DURATION, *quantiles(c.RENEWAL_DURATION, "result")
        ),
        panel("Rounds of taking", "s", c.TAKE_DURATION, *quantiles(c.TAKE_DURATION, "result")),
        panel(
            "Checkpoints", "s", c.CHECKPOINT_DURATION, *quantiles(c.CHECKPOINT_DURATION, "result")
        ),
    ),
    "Calls": (
        panel(
            "Calls of Kinesis",
            "cps",
            c.CALL_DURATION,
            rate(c.CALL_DURATION, "operation", "result", suffix="_count"),
        ),
        panel(
            "Duration of calls of Kinesis",
            "s",
            c.CALL_DURATION,
            *quantiles(c.CALL_DURATION, "operation"),
        ),
        panel(
            "Calls made again", "cps", c.CALL_RETRIES, rate(c.CALL_RETRIES, "operation", "reason")
        ),
        panel(
            "Calls of DynamoDB",
            "cps",
            c.TABLE_CALL_DURATION,
            rate(c.TABLE_CALL_DURATION, "operation", "result", suffix="_count"),
        ),
        panel(
            "Duration of calls of DynamoDB",
            "s",
            c.TABLE_CALL_DURATION,
            *quantiles(c.TABLE_CALL_DURATION, "operation"),
        ),
        panel(
            "Subscriptions that ended",
            "short",
            c.SUBSCRIPTIONS_ENDED,
            events(c.SUBSCRIPTIONS_ENDED, "stream", "reason"),
        ),
    ),
    "Fleets": (
        Panel(
            "Workers",
            "short",
            "Workers that a fleet was asked for, that run, and that wait for a slot.",
            tuple(
                Line(total(metric, "application").expression, f"{word} {legend('application')}")
                for metric, word in (
                    (c.FLEET_WANTED, "wanted"),
                    (c.FLEET_RUNNING, "running"),
                    (c.FLEET_WAITING, "waiting"),
                )
            ),
        ),
        panel("Restarts", "short", c.FLEET_RESTARTS, events(c.FLEET_RESTARTS, "application")),
    ),
    "Queries": (
        panel("Lag of queries", "s", c.QUERY_LAG_MAX, largest(c.QUERY_LAG_MAX, "query", "stream")),
        panel(
            "Lag of the worst shards",
            "s",
            c.QUERY_LAG,
            worst(c.QUERY_LAG, "query", "stream", "shard"),
        ),
        panel("Rows read", "cps", c.QUERY_ROWS, rate(c.QUERY_ROWS, "query", "stream")),
        panel("Failed runs", "short", c.QUERY_FAILURES, events(c.QUERY_FAILURES, "query", "error")),
        panel(
            "Time since progress",
            "s",
            c.QUERY_PROGRESS_AGE,
            largest(c.QUERY_PROGRESS_AGE, "query"),
        ),
        panel(
            "Duration of micro-batches",
            "s",
            c.QUERY_BATCH_DURATION,
            *quantiles(c.QUERY_BATCH_DURATION, "query"),
        ),
        panel(
            "Duration of planning",
            "s",
            c.QUERY_PLANNING_DURATION,
            *quantiles(c.QUERY_PLANNING_DURATION, "query"),
        ),
        panel(
            "Filled share of the limit",
            "percentunit",
            c.QUERY_LIMIT_FILLED,
            largest(c.QUERY_LIMIT_FILLED, "query", "stream"),
        ),
        Panel(
            "Calls of plans",
            "cps",
            f"{c.QUERY_PROBES.help} {c.QUERY_THROTTLED.help}",
            (
                Line(
                    rate(c.QUERY_PROBES, "query", "stream").expression,
                    f"GetRecords {legend('query', 'stream')}",
                ),
                Line(
                    rate(c.QUERY_THROTTLED, "query", "stream").expression,
                    f"throttled {legend('query', 'stream')}",
                ),
            ),
        ),
        panel("Ranges read", "cps", c.QUERY_RANGES, rate(c.QUERY_RANGES, "query", "stream")),
        Panel(
            "Rows dropped and lost",
            "short",
            "Rows that the watermark dropped as late, and times that records were gone.",
            (
                Line(events(c.QUERY_LATE_ROWS, "query").expression, f"late {legend('query')}"),
                Line(
                    total(c.QUERY_DATA_LOSS, "query", "stream").expression,
                    f"data loss {legend('query', 'stream')}",
                ),
            ),
        ),
    ),
    "Queues": (
        panel(
            "Age of records when they are received",
            "s",
            c.QUEUE_AGE,
            Line(
                f"{rate(c.QUEUE_AGE, *_QUEUE, suffix='_sum').expression} / "
                f"{rate(c.QUEUE_AGE, *_QUEUE, suffix='_count').expression}",
                f"mean {legend(*_QUEUE)}",
            ),
            quantile(0.99, c.QUEUE_AGE, *_QUEUE),
        ),
        Panel(
            "Records",
            "cps",
            f"{c.QUEUE_RECEIVED.help} {c.QUEUE_ACKNOWLEDGED.help}",
            (
                Line(rate(c.QUEUE_RECEIVED, *_QUEUE).expression, f"received {legend(*_QUEUE)}"),
                Line(
                    rate(c.QUEUE_ACKNOWLEDGED, *_QUEUE).expression,
                    f"acknowledged {legend(*_QUEUE)}",
                ),
            ),
        ),
        Panel(
            "Failures and redeliveries",
            "short",
            f"{c.QUEUE_FAILED.help} {c.QUEUE_REDELIVERED.help}",
            (
                Line(events(c.QUEUE_FAILED, *_QUEUE).expression, f"failed {legend(*_QUEUE)}"),
                Line(
                    events(c.QUEUE_REDELIVERED, *_QUEUE).expression,
                    f"delivered again {legend(*_QUEUE)}",
                ),
            ),
        ),
        panel(
            "Holds lost", "short", c.QUEUE_HOLDS_LOST, events(c.QUEUE_HOLDS_LOST, *_QUEUE, "state")
        ),
        panel(
            "Refusals",
            "short",
            c.QUEUE_REFUSALS,
            events(c.QUEUE_REFUSALS, *_QUEUE, "call", "code"),
        ),
        panel("Records in hand", "short", c.QUEUE_IN_HAND, total(c.QUEUE_IN_HAND, *_QUEUE)),
        panel("Extensions of holds", "cps", c.QUEUE_EXTENSIONS, rate(c.QUEUE_EXTENSIONS, *_QUEUE)),
        Panel(
            "Receives without records",
            "cps",
            f"{c.QUEUE_EMPTY_RECEIVES.help} {c.QUEUE_RECEIVES_FAILED.help}",
            (
                Line(rate(c.QUEUE_EMPTY_RECEIVES, *_QUEUE).expression, f"empty {legend(*_QUEUE)}"),
                Line(
                    rate(c.QUEUE_RECEIVES_FAILED, *_QUEUE, "code").expression,
                    f"failed {legend(*_QUEUE, 'code')}",
                ),
            ),
        ),
    ),
}


def dashboard() -> str:
    """Return the dashboard as JSON, for Grafana's import or its provisioning."""
    board = (
        Dashboard("sparkinesis")
        .uid("sparkinesis")
        .description(
            "Kinesis streams, read by sparkinesis: workers, fleets, Spark queries and queues."
        )
        .tags(["kinesis", "sparkinesis"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(DatasourceVariable("datasource").label("data source").type("prometheus"))
    )
    for name, metrics in VARIABLES.items():
        board.with_variable(_variable(name, *metrics))
    numbers = itertools.count(1)
    for title, panels in ROWS.items():
        board.with_row(Row(title).id(next(numbers)))
        for one in panels:
            board.with_panel(_chart(one).id(next(numbers)))
    text = json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True)
    return text + "\n"


def _variable(label: str, *metrics: Metric) -> Any:
    """Return a choice among the values of a label of these metrics."""
    names = "|".join(series(metric, **{label: "any"}).partition("{")[0] for metric in metrics)
    return (
        QueryVariable(label)
        .label(label)
        .datasource(SOURCE)
        .query(f'label_values({{__name__=~"{names}"}}, {label})')
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _chart(one: Panel) -> Any:
    chart = (
        Chart()
        .title(one.title)
        .description(one.about)
        .datasource(SOURCE)
        .unit(one.unit)
        .min(0)
        .span(WIDTH)
        .height(HEIGHT)
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    for line, name in zip(one.lines, "ABCDEFG", strict=False):
        chart.with_target(
            Dataquery()
            .ref_id(name)
            .datasource(SOURCE)
            .expr(line.expression)
            .legend_format(line.legend)
            .range()
        )
    return chart
