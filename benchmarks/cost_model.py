"""What an application or a query of many shards costs: calls, DynamoDB's units, CPU, bytes.

Pure functions of the numbers of shards and workers. The constants that depend on a machine are
measured by `benchmarks.scale`; docs/scale.md has the formulas, their sources and the tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from sparkinesis.lease.assignment.partial_scan import FULL_EVERY, STANDBYS, WITNESSES, WORTHWHILE
from sparkinesis.lease.scan_schedule import ALONE, CALM
from sparkinesis.source.planning.probe_threads import threads_for
from sparkinesis.stream.reading.retention import ITERATOR_LIFE_MS
from sparkinesis.worker.options import LONGEST_WAIT, WorkerOptions

WRITE_UNIT, READ_UNIT, SCAN_PAGE = 1024, 4096, 1024 * 1024
"""Bytes. A write takes a unit for each started 1 KB of the row, a read that is not consistent half
a unit for each 4 KB of all rows together; an answer of Scan holds 1 MB of rows."""
BATCH = 25
"""Statements of a BatchExecuteStatement."""
LISTED = 1_000
"""Shards of a ListShards answer, by default and at most 10,000."""
KEPT_PROGRESS = 100
"""The progress objects that Spark's driver keeps (spark.sql.streaming.numRecentProgressUpdates)."""
KEPT_BATCHES = 100
"""The batches whose offsets stay in a checkpoint (spark.sql.streaming.minBatchesToRetain)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one shard or lease costs on one machine; see docs/scale.md for the commands."""

    call_cpu: float = 0.000_2
    """CPU seconds of an empty GetRecords call of a worker, or of a look of the planner."""
    renewal_cpu: float = 0.000_05
    """CPU seconds of a renewal among others in a call."""
    row_cpu: float = 0.000_05
    """CPU seconds for a row of the lease table at each look of a worker: read, compare, decide."""
    row_bytes: int = 310
    """Bytes of a lease's row, as DynamoDB counts them."""
    offset_bytes: int = 169
    """Bytes of a shard in an offset."""
    planner_bytes: int = 6_500
    """Bytes of memory of a shard in the planner's process."""
    key_bytes: int = 110
    """Bytes of a lease in the index by owner: two keys, with their names."""
    row_memory: int = 2_800
    """Bytes of memory of a row of the lease table in each worker, while the worker reads it."""


MEASURED = Measured()


@dataclass(frozen=True, slots=True)
class Application:
    """Workers that share the shards of a stream evenly, without records.

    checkpoints: per shard and second.
    """

    shards: int
    workers: int
    options: WorkerOptions = field(default_factory=WorkerOptions)
    checkpoints: float = 0.0
    measured: Measured = MEASURED

    @property
    def shards_of_a_worker(self) -> int:
        return math.ceil(self.shards / self.workers)

    @property
    def get_records(self) -> float:
        """GetRecords calls a second, by polling."""
        return self.shards / self.options.idle_time

    @property
    def subscribe(self) -> float:
        """SubscribeToShard calls a second, by enhanced fan-out: a subscription lasts 5 minutes."""
        return self.shards / (ITERATOR_LIFE_MS / 1000)

    @property
    def renewal_calls(self) -> float:
        """BatchExecuteStatement calls a second."""
        calls = self.workers * math.ceil(self.shards_of_a_worker / BATCH)
        return calls / self.options.renew_interval

    @property
    def write_units(self) -> float:
        """DynamoDB's write units a second: a batch is charged for each of its statements."""
        units = math.ceil(self.measured.row_bytes / WRITE_UNIT)
        return self.shards * units * (1 / self.options.renew_interval + self.checkpoints)

    @property
    def table_bytes(self) -> int:
        return self.shards * self.measured.row_bytes

    @property
    def scan_pause(self) -> float:
        """Seconds between two readings of the table while all workers live and no lease moves."""
        return self.options.taker_interval * (ALONE if self.workers == 1 else CALM)

    @property
    def partial_readers(self) -> int:
        """The workers that read only their own rows: a leader and standbys read all of them."""
        is_led = self.options.balance != "count" and self.shards >= WORTHWHILE
        return max(0, self.workers - 1 - STANDBYS) if is_led else 0

    @property
    def scans(self) -> float:
        """Readings of the whole table a second, by all workers."""
        often = (self.workers - self.partial_readers) / self.scan_pause
        return often + self.partial_readers / FULL_EVERY

    @property
    def scan_calls(self) -> float:
        """Scan calls a second."""
        return self.scans * math.ceil(self.table_bytes / SCAN_PAGE)

    @property
    def read_units(self) -> float:
        """DynamoDB's read units a second."""
        whole = math.ceil(self.table_bytes / READ_UNIT) / 2
        keys = math.ceil(self.shards_of_a_worker * self.measured.key_bytes / READ_UNIT) / 2
        # The lock, the mode and some leases of the leader; a GetItem of a batch is half a unit.
        own = keys + (2 + WITNESSES) / 2
        return self.scans * whole + self.partial_readers * own / self.scan_pause

    @property
    def listings(self) -> float:
        """ListShards calls an hour, of the leader: once if finished leases are to be deleted."""
        hours = 3600 / (60 * self.options.cleanup_interval)
        return math.ceil(self.shards / LISTED) * hours

    @property
    def worker_cpu(self) -> float:
        """CPU seconds a second of one worker by polling, without records."""
        calls = self.shards_of_a_worker / self.options.idle_time * self.measured.call_cpu
        renewals = self.shards_of_a_worker / self.options.renew_interval * self.measured.renewal_cpu
        return calls + renewals + self.table_cpu

    @property
    def table_cpu(self) -> float:
        """The part of `worker_cpu` that reading the table takes."""
        return self.shards * self.measured.row_cpu / self.scan_pause

    @property
    def table_memory(self) -> int:
        """Bytes of memory that the table's rows take in each worker."""
        return self.shards * self.measured.row_memory


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query. latency: seconds of a call. active: shards with new records in a batch."""

    shards: int
    latency: float = 0.010
    active: int = 0
    measured: Measured = MEASURED

    @property
    def calls(self) -> int:
        """GetRecords calls of an idle plan: Kinesis has no other way to see that nothing came."""
        return self.shards

    @property
    def first_calls(self) -> int:
        """All calls of the first plan."""
        return 2 * self.shards + math.ceil(self.shards / LISTED)

    @property
    def cpu(self) -> float:
        """CPU seconds of an idle plan."""
        return self.shards * self.measured.call_cpu

    @property
    def seconds(self) -> float:
        """Seconds of an idle plan: its threads wait for calls, and share one core."""
        return max(self.cpu, self.shards * self.latency / threads_for(self.shards))

    @property
    def offset(self) -> int:
        """Bytes of an offset."""
        return self.shards * self.measured.offset_bytes

    @property
    def checkpoint(self) -> int:
        """Bytes of the offsets in the checkpoint."""
        return KEPT_BATCHES * self.offset

    @property
    def progress(self) -> int:
        """Bytes of the offsets in the progress objects that the driver keeps: three in each."""
        return KEPT_PROGRESS * 3 * self.offset

    @property
    def memory(self) -> int:
        """Bytes of memory of the planner's process, beyond that of a query of one shard."""
        return self.shards * self.measured.planner_bytes


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of AWS, and what uses it."""

    name: str
    limit: float
    used: float

    @property
    def is_hit(self) -> bool:
        return self.used > self.limit


def quotas(application: Application) -> Iterator[Quota]:
    """Yield the default quotas that grow with an application; see docs/scale.md for sources."""
    yield Quota("shards of an account", 20_000, application.shards)
    yield Quota("GetRecords a second of a shard", 5, application.get_records / application.shards)
    yield Quota("ListShards a second of a stream", 1_000, application.listings / 3600)
    yield Quota("read units a second of a table", 40_000, application.read_units)
    yield Quota("write units a second of a table", 40_000, application.write_units)


def least_failover_time(shards: int, workers: int, read_units: float = 40_000) -> float:
    """Return the failover time (seconds) from which the table's readings stay within a quota.

    An hour, the longest that the option takes, if even that is too short.
    """
    low, high = 1.0, LONGEST_WAIT
    for _ in range(60):
        middle = (low + high) / 2
        options = WorkerOptions(failover_time=middle)
        if Application(shards, workers, options).read_units > read_units:
            low = middle
        else:
            high = middle
    return high
