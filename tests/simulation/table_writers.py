"""Other writers of the lease table: an operator, a Java KCL, and edits by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.lease.moving.application_reset import StreamToReset, apply_resets, plan_resets
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp
from sparkinesis.stream.timing import Timing
from tests.simulation.dynamodb import LeaseTableModel
from tests.simulation.fleet import APPLICATION
from tests.simulation.history import Foreign, Reset
from tests.simulation.journal import Journal
from tests.simulation.kinesis import REGION
from tests.simulation.producer import STREAM
from tests.simulation.scheduler import Process, Scheduler

NOTE = "note"
"""A foreign attribute."""
JAVA = f"java-1-{0:012x}"
"""The worker id of a KCL that takes a lease. Of the form of this library's own: record processors
that move their shards beside a known Java KCL write other checkpoints, which are not simulated."""


@dataclass
class TableWriters:
    scheduler: Scheduler
    table: LeaseTableModel
    journal: Journal
    is_open: Callable[[str], bool]
    """True for a shard that is open."""
    operators: dict[Process, Reset] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    """Rows with a foreign attribute."""
    deleted: set[str] = field(default_factory=set)
    """Rows that were deleted by hand."""

    # --- an operator

    def reset(self, event: Reset) -> None:
        process = self.scheduler.process(f"operator {len(self.operators) + 1}")
        self.operators[process] = event
        self.scheduler.spawn(process, "reset", lambda: self._reset(process, event))

    def _reset(self, process: Process, event: Reset) -> None:
        """Repeats the command until it succeeds, like an operator who reads that it failed."""
        timing = Timing(clock=process.monotonic, sleep=self.scheduler.sleep)
        address = StreamAddress(STREAM, region=REGION)
        client = StreamClient(
            address, timing.of(Backoff(), self.scheduler.rng), self.journal.now_ms
        )
        table = LeaseTable(APPLICATION, REGION)
        table = replace(table, retry=timing.of(table.retry, self.scheduler.rng))
        if not self.table.is_there:
            return
        if isinstance(event.to, float):
            to: Any = AtTimestamp(self.journal.now_ms() - round(event.to * 1000))
        else:
            to = LATEST if event.to == "LATEST" else TRIM_HORIZON
        while True:
            try:
                only = StreamToReset(client)
                apply_resets(table, plan_resets([only], table, to, self.scheduler.sleep))
            except OptionError as error:
                self.journal.write("", "operator gives up", str(error))
                return
            except SparkinesisError as error:
                self.journal.write("", "operator tries again", type(error).__name__)
                self.scheduler.sleep(2.0)
            else:
                self.journal.write("", "operator is done")
                return

    def are_done(self) -> bool:
        return not any(process.is_alive for process in self.operators)

    # --- others

    def write(self, event: Foreign) -> None:
        rows = [row for row in self.table.lease_rows.values() if self._may(event, row)]
        if not rows:
            return
        row = dict(rows[min(int(event.place * len(rows)), len(rows) - 1)])
        key = row["leaseKey"]["S"]
        if event.what == "delete":
            self.deleted.add(key)
            self.table.put(key, None)
            return
        if event.what == "note":
            self.noted.add(key)
            row[NOTE] = {"S": "by hand"}
        elif event.what == "evict":
            row.pop("leaseOwner", None)
            row.pop("checkpointOwner", None)
        else:
            row["leaseOwner"] = {"S": JAVA}
        if event.what != "note":
            row["leaseCounter"] = {"N": str(int(row["leaseCounter"]["N"]) + 1)}
        self.table.put(key, row)

    def _may(self, event: Foreign, row: Mapping[str, Any]) -> bool:
        if event.what == "delete":
            return self.is_open(row["leaseKey"]["S"])
        return row["checkpoint"]["S"] != "SHARD_END" or event.what == "note"
