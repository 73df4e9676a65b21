"""What a KCL for Java 3.5 publishes in CloudWatch: operation, name, level and dimensions."""

from __future__ import annotations

from typing import NamedTuple


class KclMetric(NamedTuple):
    operation: str
    name: str
    level: str
    unit: str
    dimensions: frozenset[str]


_TABLE = """
ProcessTask (ShardId StreamId)
  S RecordsProcessed DataBytesProcessed MillisBehindLatest
    RecordProcessor.processRecords.Time Success Time ExpiredIterator
  D KinesisDataFetcher.getRecords.OK KinesisDataFetcher.getShardIterator.OK UpdateLease.OK
ApplicationTracker ()
  S MillisBehindLatest
InitializeTask ()
  S RecordProcessor.initialize.Time
ShutdownTask ()
  S RecordProcessor.shutdown.Time MissingMergeParent MissingMergeParentLease
  D CreateLease.OK UpdateLease.OK
ShardSyncTask ()
  D SyncShards.Success CreateLease.OK
RenewAllLeases (WorkerIdentifier)
  S CurrentLeases LostLeases Success Time
  D RenewLease.OK
LeaseRenewerInitialize ()
  D Fault
TakeLeases (WorkerIdentifier)
  S TakenLeases UntakenLeases ExpiredLeases LeaseSpillover NumWorkers VeryOldLeases Success Time
  D LeasesToTake NeededLeases TotalLeases ListLeases.OK TakeLease.OK
LeaseAssignmentManager ()
  S TotalLeases NumWorkers ExpiredLeases LeaseSpillover NumOfLeasesReassignment
    NumWorkersWithInvalidEntry NumWorkersWithFailingWorkerMetric Success Time
  D FailedAssignmentCount LeaseAndWorkerMetricsLoad.Time BalanceWorkerVariance.Time
    ParallelyAssignLeases.OK
WorkerMetricStatsReporter (WorkerIdentifier)
  S Success Time
LeaderDecider ()
  D LeaderDecider:IsLeader
PeriodicShardSyncManager ()
  S NumStreamsWithPartialLeases NumStreamsToSync Success Time
MultiStreamTracker ()
  S ActiveStreams.Count StreamsPendingDeletion.Count DeletedStreams.Count
"""
"""``.OK`` is ``.Success`` and ``.Time``."""

_UNITS = {"DataBytesProcessed": "Bytes", "MillisBehindLatest": "Milliseconds"}


def _parsed() -> list[KclMetric]:
    found: list[KclMetric] = []
    operation, level = "", ""
    dimensions: frozenset[str] = frozenset()
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            operation = words[0]
            dimensions = frozenset(" ".join(words[1:]).strip("()").split())
            continue
        if words[0] in {"S", "D"}:
            level = {"S": "summary", "D": "detailed"}[words.pop(0)]
        for word in words:
            stem = word.removesuffix("OK")
            for name in [word] if stem == word else [f"{stem}Success", f"{stem}Time"]:
                unit = _UNITS.get(name, "Milliseconds" if name.endswith("Time") else "Count")
                its = frozenset({"StreamId"}) if name == "ExpiredIterator" else dimensions
                found.append(KclMetric(operation, name, level, unit, its))
    return found


KCL_METRICS = _parsed()
