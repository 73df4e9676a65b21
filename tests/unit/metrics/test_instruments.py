"""The names of the KCL for Java's OpenTelemetry metrics, against a list of all of them."""

from __future__ import annotations

from itertools import chain

import pytest

from sparkinesis.metrics.catalogue import APPLICATION_PAGE_LAG, CATALOGUE, LEADER, PAGE_LAG
from sparkinesis.metrics.instruments import java_name, names_of
from sparkinesis.metrics.metric import Kind, Metric

_LIST = """
ActiveStreams.Count                   streams.active                                      gauge
AssignExpiredOrUnassignedLeases.Time  assign_expired_or_unassigned_leases.duration        histogram
BalanceWorkerVariance.Time            balance_worker_variance.duration                    histogram
CreateLease.Success                   create_lease.success                                counter
CreateLease.Time                      create_lease.duration                               histogram
CurrentLeases                         current_leases                                      gauge
DataBytesProcessed                    records.size                                        histogram
DeletedStreams.Count                  streams.deleted                                     counter
ExpiredIterator                       expired_iterator                                    counter
ExpiredLeases                         expired_leases                                      gauge
FailedAssignmentCount                 failed_assignment_count                             counter
Fault                                 fault                                               counter
FetchNewLeases.Time                   fetch_new_leases.duration                           histogram
ForceLeaderRelease                    force_leader_release                                counter
GetLease:Error                        get_lease.error                                     counter
KinesisDataFetcher.getRecords.Success kinesis_data_fetcher.get_records.success            counter
KinesisDataFetcher.getRecords.Time    kinesis_data_fetcher.get_records.duration           histogram
KinesisDataFetcher.getShardIterator.Success kinesis_data_fetcher.get_shard_iterator.success counter
KinesisDataFetcher.getShardIterator.Time kinesis_data_fetcher.get_shard_iterator.duration histogram
LeaderDecider:IsLeader                leader_decider.is_leader                            counter
LeaseAndWorkerMetricsLoad.Time        lease_and_worker_metrics_load.duration              histogram
LeaseSpillover                        lease_spillover                                     counter
LeasesToTake                          leases_to_take                                      counter
ListLeaseKeysForWorker.Time           list_lease_keys_for_worker.duration                 histogram
ListLeases.Success                    list_leases.success                                 counter
ListLeases.Time                       list_leases.duration                                histogram
LostLeases                            lost_leases                                         counter
MillisBehindLatest                    consumer.lag.duration                               histogram
MissingMergeParent                    missing_merge_parent                                counter
MissingMergeParentLease               missing_merge_parent_lease                          counter
NeededLeases                          needed_leases                                       counter
NewLeasesDiscovered                   new_leases_discovered                               counter
NonExistingStreamDelete.Count         streams.deleted_nonexistent                         counter
NumOfLeasesReassignment               num_of_leases_reassignment                          counter
NumStreamsToSync                      streams.pending_sync                                gauge
NumStreamsWithPartialLeases           num_streams_with_partial_leases                     counter
NumWorkers                            workers                                             gauge
NumWorkersWithFailingWorkerMetric     workers.failing_worker_metric                       gauge
NumWorkersWithInvalidEntry            workers.invalid_entry                               gauge
OwnerMismatch                         owner_mismatch                                      counter
ParallelyAssignLeases.Time            parallely_assign_leases.duration                    histogram
QueueSize                             stream_id_cache.queue.size                          gauge
RecordProcessor.initialize.Time       record_processor.initialize.duration                histogram
RecordProcessor.processRecords.Time   record_processor.process_records.duration           histogram
RecordProcessor.shutdown.Time         record_processor.shutdown.duration                  histogram
RecordsProcessed                      records_processed                                   counter
RenewLease.Time                       renew_lease.duration                                histogram
StreamsPendingDeletion.Count          streams.pending_deletion                            gauge
Success                               success                                             counter
SyncShards.Success                    sync_shards.success                                 counter
TakeLease.Time                        take_lease.duration                                 histogram
TakenLeases                           taken_leases                                        counter
Time                                  time                                                histogram
TotalLeases                           total_leases                                        gauge
UntakenLeases                         untaken_leases                                      counter
UpdateLease.Success                   update_lease.success                                counter
UpdateLease.Time                      update_lease.duration                               histogram
VeryOldLeases                         very_old_leases                                     gauge
"""
"""The KCL's name in CloudWatch, the one in OpenTelemetry behind ``aws.kinesis.client.``, and its
instrument: from awslabs/amazon-kinesis-client 3.5.1, where its classes call ``addData``,
``addSuccess`` and ``addLatency``, by the tables of ``OtelMetricNameTransformer`` (names) and
``OtelMetricsScope`` (gauges; what is counted is a counter, and the rest a histogram)."""

JAVA = {
    name: (f"aws.kinesis.client.{otel}", kind)
    for name, otel, kind in (line.split() for line in _LIST.strip().splitlines())
}
OTHER_KIND = {PAGE_LAG: Kind.GAUGE, LEADER: Kind.GAUGE}
"""The two that differ from Java's on purpose, as docs/metrics.md says."""


@pytest.mark.parametrize(
    "metric", [one for one in CATALOGUE if one.kcl], ids=lambda metric: metric.name
)
def test_each_metric_that_the_kcl_has_has_its_name_and_instrument(metric: Metric) -> None:
    ours = {one.name: one.kind for one in names_of(metric)}
    own = {name: kind for name, kind in ours.items() if name.startswith("sparkinesis.")}
    of_kcl = set(chain.from_iterable(one.names for one in metric.kcl))
    if metric.otel_name:  # Java measures each renewal, and calls a round just "Time"
        of_kcl.add(metric.otel_name)
    of_java = {JAVA[name][0]: Kind(JAVA[name][1]) for name in of_kcl}
    # Successes are the attribute "result" here, and all of Java's operations share a "Time".
    of_java = {
        name: OTHER_KIND.get(metric, kind)
        for name, kind in of_java.items()
        if not name.endswith((".success", ".time")) and metric is not APPLICATION_PAGE_LAG
    }
    assert {name: kind for name, kind in ours.items() if name not in own} == of_java
    assert len(own) == (not of_java or any(one.when for one in metric.kcl))


@pytest.mark.parametrize(
    "name",
    sorted(
        {name for one in CATALOGUE for kcl in one.kcl for name in kcl.names} | {"RenewLease.Time"}
    ),
)
def test_the_rule_is_javas(name: str) -> None:
    assert java_name(name) == JAVA[name][0]


def test_no_two_metrics_have_one_name() -> None:
    names = [one.name for metric in CATALOGUE for one in names_of(metric)]
    assert len(names) == len(set(names))
