"""Alerts for Prometheus: ``prometheus/rules.yml``, with names from the catalogue of metrics."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from deploy.queries import by, series
from sparkinesis.metrics import catalogue as c
from sparkinesis.metrics.metric import Metric

HEADER = """\
# Made by `python -m deploy`. Edit the thresholds here, or make the file anew with other ones:
# `python -m deploy --help`.
"""


@dataclass(frozen=True)
class Thresholds:
    """The limits beyond which somebody is told. Durations are seconds."""

    lag: int = 12 * 3600
    """Half of the retention: what is not read within the other half is lost. Kinesis keeps records
    for 24 hours unless told otherwise."""
    checkpoint_age: int = 15 * 60
    """More than the longest time between two checkpoints of a healthy processor."""
    processing: int = 10 * 60
    """More than the longest call of ``process_records`` of a healthy processor."""
    failures: int = 5
    """Failed calls of ``process_records`` within 10 minutes that are no cause for alarm. Those that
    only search a failed batch for the bad record do not count."""
    table: int = 2 * 60
    """More than the time between two complete scans of the lease table."""
    progress: int = 30 * 60
    """More than the longest micro-batch of a healthy query."""
    redeliveries: int = 10
    """Percent of the records that a queue delivers which were delivered before, if all is well."""


_ONE_LINE = 1000
"""Expressions are not broken: people search for them, and copy them."""

DEFAULTS = Thresholds()


@dataclass(frozen=True)
class Alert:
    """One alert. ``hold``: how long the expression must hold, such as ``5m``; empty: at once."""

    name: str
    expression: str
    hold: str
    severity: str
    summary: str
    description: str

    def rule(self) -> dict[str, object]:
        return {
            "alert": f"Sparkinesis{self.name}",
            "expr": self.expression,
            **({"for": self.hold} if self.hold else {}),
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.description},
        }


def alerts(limits: Thresholds = DEFAULTS) -> list[Alert]:
    return [
        *_of_lag(limits),
        *_of_shards(limits),
        *_of_failures(limits),
        *_of_workers(limits),
        *_of_queues(limits),
    ]


def _of_lag(limits: Thresholds) -> list[Alert]:
    about = (
        "Records that are older than the stream's retention are lost. Look for failing or slow "
        "batches, add workers or shards, or extend the retention at once."
    )
    worker = f"max {by('application', 'stream', of=c.LAG)} ({series(c.LAG)})"
    query = f"max {by('query', 'stream', of=c.QUERY_LAG_MAX)} ({series(c.QUERY_LAG_MAX)})"
    return [
        Alert(
            "LagHigh",
            f"{worker} > {limits.lag}",
            "5m",
            "critical",
            "{{ $labels.application }} is {{ $value | humanizeDuration }} behind "
            "{{ $labels.stream }}",
            about,
        ),
        Alert(
            "QueryLagHigh",
            f"{query} > {limits.lag}",
            "5m",
            "critical",
            "Query {{ $labels.query }} is {{ $value | humanizeDuration }} behind "
            "{{ $labels.stream }}",
            about,
        ),
        Alert(
            "ShardLagHigh",
            # The exporter sees a pause as it sees a dead worker; the worker tells of its pauses.
            f"max {by('application', 'stream', of=c.SHARD_LAG)} "
            f"({_unless_paused(series(c.SHARD_LAG))}) > {limits.lag}",
            "5m",
            "critical",
            "The checkpoints of {{ $labels.application }} are {{ $value | humanizeDuration }} "
            "behind {{ $labels.stream }}, by its lease table",
            about,
        ),
    ]


def _of_shards(limits: Thresholds) -> list[Alert]:
    shard = "application, worker, stream, shard"
    return [
        Alert(
            "ShardWithoutOwner",
            f"max by (application) ({series(c.LEASES_UNREAD)}) > 0",
            "5m",
            "critical",
            "{{ $value }} shards of {{ $labels.application }} have no worker",
            "No live worker reads them. `sparkinesis leases` names them; look whether max_leases "
            "is too low for the workers that are left, and at the log of their last owner.",
        ),
        Alert(
            "StreamUnreadable",
            f"max by (application, stream) ({series(c.STREAM_UNREADABLE)}) > 0",
            "5m",
            "critical",
            "{{ $labels.application }} has not been able to read {{ $labels.stream }} for "
            "{{ $value | humanizeDuration }}",
            "Its other streams are read. Worker.streams() and the log say why. The stream is gone, "
            "or the credentials do not allow to read it.",
        ),
        Alert(
            "CheckpointOld",
            f"max by ({shard}) ({_unless_paused(series(c.CHECKPOINT_AGE))}) "
            f"> {limits.checkpoint_age}",
            "1m",
            "warning",
            "{{ $labels.application }} has not checkpointed {{ $labels.shard }} of "
            "{{ $labels.stream }} for {{ $value | humanizeDuration }}",
            "Everything since then is processed again when the shard moves. Look whether batches "
            "fail, hang, or do not call checkpoint.",
        ),
        Alert(
            "ShardPaused",
            f"max by ({shard}) ({series(c.PAUSED_AGE)}) > {limits.lag}",
            "1m",
            "critical",
            "{{ $labels.application }} has paused {{ $labels.shard }} of {{ $labels.stream }} for "
            "{{ $value | humanizeDuration }}",
            "The program holds the shard back, such as for a system downstream, and no other alert "
            "tells how old its records get. Those that are older than the stream's retention are "
            "lost. Look why the program does not resume it, or extend the retention at once.",
        ),
        Alert(
            "ProcessRecordsStuck",
            f"max by ({shard}) ({series(c.PROCESSING_FOR)}) > {limits.processing}",
            "1m",
            "critical",
            "process_records has run for {{ $value | humanizeDuration }} on {{ $labels.shard }} "
            "of {{ $labels.stream }}",
            "The worker {{ $labels.worker }} keeps the lease and makes no progress. The option "
            "processing_time_limit logs where it stands, and can give the shard to another worker.",
        ),
    ]


def _of_failures(limits: Thresholds) -> list[Alert]:
    of_stream = "by (application, stream)"
    failed = series(c.BATCHES_FAILED, action="!split")
    retries = series(c.CALL_RETRIES, reason="throttled")
    table = series(c.TABLE_CALL_DURATION, "_count", result="throttled")
    lost = (
        "Retention has trimmed records that had not been read. They cannot be read any more; the "
        "log names the shard and the positions."
    )
    return [
        Alert(
            "FailuresRising",
            _more_than(failed, of_stream, limits.failures, "10m"),
            "",
            "warning",
            "process_records of {{ $labels.application }} has failed {{ $value | humanize }} "
            "times in 10 minutes on {{ $labels.stream }}",
            "The log of the workers has the tracebacks; the option on_error says what becomes of "
            "the records.",
        ),
        Alert(
            "RecordsGivenUp",
            f"{_any_new(c.DEAD_LETTERS, of_stream)} or {_any_new(c.RECORDS_SKIPPED, of_stream)}",
            "",
            "warning",
            "{{ $labels.application }} has given up {{ $value | humanize }} records of "
            "{{ $labels.stream }} within the hour",
            "They cannot be processed, and on_error has stored them as dead letters, or skipped "
            "them. The log has their positions and the tracebacks; `sparkinesis dead-letters` "
            "shows those that are stored, and puts them back.",
        ),
        Alert(
            "Throttled",
            f"sum {of_stream} (rate({retries}[5m])) > 0",
            "5m",
            "warning",
            "Kinesis throttles {{ $labels.application }} on {{ $labels.stream }}",
            "Each shard serves 5 calls and 2 MB a second to all of its readers together. Look for "
            "other readers, use enhanced fan-out, or add shards.",
        ),
        Alert(
            "TableThrottled",
            f"sum by (application) (rate({table}[5m])) > 0",
            "5m",
            "warning",
            "DynamoDB throttles the lease table of {{ $labels.application }}",
            "Renewals and checkpoints are late, and leases may be lost. Make the table on-demand, "
            "or provision more capacity.",
        ),
        Alert(
            "DataLoss",
            _any_new(c.DATA_LOSS, of_stream),
            "",
            "critical",
            "{{ $labels.application }} has lost records of {{ $labels.stream }}",
            lost,
        ),
        Alert(
            "QueryDataLoss",
            _any_new(c.QUERY_DATA_LOSS, "by (query, stream)"),
            "",
            "critical",
            "Query {{ $labels.query }} has lost records of {{ $labels.stream }}",
            lost,
        ),
        Alert(
            "QueryFailed",
            _any_new(c.QUERY_FAILURES, "by (query, error)"),
            "",
            "critical",
            "Query {{ $labels.query }} has failed: {{ $labels.error }}",
            "Nobody reads its streams until it is started again. The driver's log has the error.",
        ),
        Alert(
            "QueryStuck",
            f"max by (query) ({series(c.QUERY_PROGRESS_AGE)}) > {limits.progress}",
            "",
            "critical",
            "Query {{ $labels.query }} has ended no batch for {{ $value | humanizeDuration }}",
            "Its lag is as old as the plan of its last batch. Look at the running stage in Spark's "
            "page, and at the executors' logs.",
        ),
    ]


def _of_workers(limits: Thresholds) -> list[Alert]:
    wanted, running = series(c.FLEET_WANTED), series(c.FLEET_RUNNING)
    held = series(c.LEASES_HELD)
    seen = [f"max by (application) ({series(c.TABLE_UNSEEN)})"]
    seen += [f"max by (application) ({series(c.TABLE_LOOK_AGE)})"]
    return [
        Alert(
            "TableUnseen",
            " or ".join(f"{one} > {limits.table}" for one in seen),
            "",
            "critical",
            "The lease table of {{ $labels.application }} has not been seen for "
            "{{ $value | humanizeDuration }}",
            "It was deleted, DynamoDB does not answer, or the credentials are refused: /readyz and "
            "the log say which. Leases expire, and shards are not read. Do not start workers anew "
            "for a deleted table: they would make it anew, and begin at the initial position.",
        ),
        Alert(
            "WorkersMissing",
            f"sum by (application) ({wanted}) - sum by (application) ({running}) > 0",
            "5m",
            "warning",
            "{{ $value }} workers of the fleet {{ $labels.application }} do not run",
            "Spark has no free slots for them, or they end at their start. The driver's log and "
            "Fleet.status() tell why.",
        ),
        Alert(
            "ApplicationGone",
            f"count by (application) (present_over_time({held}[1h])) "
            f"unless count by (application) ({held})",
            "5m",
            "critical",
            "{{ $labels.application }} had a worker within the last hour, and has none now",
            "Nobody reads its streams. Silence this for an hour if it was stopped on purpose.",
        ),
        Alert(
            "NoWorker",
            f"absent({held}) and absent({series(c.QUERY_RUNNING)}) "
            f"and absent({series(c.QUEUE_IN_HAND)})",
            "5m",
            "critical",
            "There is no worker of any application, and no query",
            "Nobody reads the streams, or Prometheus reaches neither workers nor drivers.",
        ),
    ]


def _of_queues(limits: Thresholds) -> list[Alert]:
    of_queue = "by (application, queue)"
    with_code = "by (application, queue, code)"
    in_hand = series(c.QUEUE_IN_HAND)
    return [
        Alert(
            "QueueAgeHigh",
            # The buckets of a histogram end at minutes.
            f"{_rate(c.QUEUE_AGE, of_queue, '_sum')} / {_rate(c.QUEUE_AGE, of_queue, '_count')} "
            f"> {limits.lag}",
            "5m",
            "critical",
            "{{ $labels.application }} receives records of {{ $labels.queue }} that are "
            "{{ $value | humanizeDuration }} old",
            "Records and dead letters that are older than the stream's retention are lost. Raise "
            "the concurrency, start more processes, or extend the retention at once.",
        ),
        Alert(
            "QueueUnreceived",
            f"{_rate(c.QUEUE_RECEIVES_FAILED, with_code)} > 0 unless on (application, queue) "
            f"({_rate(c.QUEUE_RECEIVED, of_queue)} > 0 "
            f"or {_rate(c.QUEUE_EMPTY_RECEIVES, of_queue)} > 0)",
            "5m",
            "critical",
            "{{ $labels.application }} cannot receive from {{ $labels.queue }}: {{ $labels.code }}",
            "All of its receives fail. The log has the service's message.",
        ),
        Alert(
            "QueueHoldsLost",
            _any_new(c.QUEUE_HOLDS_LOST, "by (application, queue, state)"),
            "",
            "warning",
            "{{ $labels.application }} has lost the holds of {{ $value | humanize }} records of "
            "{{ $labels.queue }} within the hour: {{ $labels.state }}",
            "They are delivered again, and what their handlers did is done twice. Extensions "
            "failed, time_limit has passed, or the process stood still: the log names the records.",
        ),
        Alert(
            "QueueRefusals",
            _more_than(
                series(c.QUEUE_REFUSALS),
                "by (application, queue, call, code)",
                limits.failures,
                "10m",
            ),
            "",
            "warning",
            "{{ $labels.queue }} has refused to {{ $labels.call }} {{ $value | humanize }} records "
            "of {{ $labels.application }} in 10 minutes: {{ $labels.code }}",
            "ThrottlingException and InternalFailureException are tried again while the hold "
            "lasts. ResourceNotFoundException is a hold that was lost.",
        ),
        Alert(
            "QueueRedeliveries",
            f"100 * {_rate(c.QUEUE_REDELIVERED, of_queue)} / {_rate(c.QUEUE_RECEIVED, of_queue)} "
            f"> {limits.redeliveries}",
            "10m",
            "warning",
            "{{ $value | humanize }} percent of the records that {{ $labels.application }} "
            "receives from {{ $labels.queue }} were delivered before",
            "Handlers fail, or holds are lost. A record that was delivered MaxReceiveCount times "
            "is a dead letter of the queue.",
        ),
        Alert(
            "QueueApplicationGone",
            f"count {of_queue} (present_over_time({in_hand}[1h])) unless count {of_queue} "
            f"({in_hand})",
            "5m",
            "critical",
            "{{ $labels.application }} had a process that receives from {{ $labels.queue }} within "
            "the last hour, and has none now",
            "Nobody receives from the queue. Silence this for an hour if it was stopped on "
            "purpose.",
        ),
    ]


def _rate(metric: Metric, grouping: str, suffix: str = "") -> str:
    """Return an expression for a counter's growth a second, over the last ten minutes."""
    return f"sum {grouping} (rate({series(metric, suffix)}[10m]))"


def _unless_paused(shards: str) -> str:
    """Return the series of shards, without those that the program has paused."""
    return f"{shards} unless on (application, stream, shard) {series(c.PAUSED_AGE)}"


def _any_new(counter: Metric, grouping: str) -> str:
    """Return an expression for a counter that has counted within the hour."""
    return _more_than(series(counter), grouping, 0, "1h")


def _more_than(counter: str, grouping: str, most: int, within: str) -> str:
    """Return an expression for a counter that has counted more than ``most`` within a time.

    A counter that begins with its first event never increases: it is new, and not zero.
    """
    return (
        f"sum {grouping} (increase({counter}[{within}])) > {most} "
        f"or sum {grouping} ({counter} unless {counter} offset {within}) > {most}"
    )


def rules(limits: Thresholds = DEFAULTS) -> str:
    """Return the file of rules, for ``rule_files`` of Prometheus."""
    group = {"name": "sparkinesis", "rules": [alert.rule() for alert in alerts(limits)]}
    body: str = yaml.safe_dump({"groups": [group]}, sort_keys=False, width=_ONE_LINE)
    return HEADER + body
