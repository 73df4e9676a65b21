"""Deliberate bugs, each as a patch of one name: what the simulation has to find."""

from __future__ import annotations

from sparkinesis.lease import held, shard_ends, shard_syncer
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules import taker
from sparkinesis.lease.shard_ends import ShardEnds
from sparkinesis.lease.shard_syncer import ShardSyncer
from sparkinesis.lease.table import batch as lease_batch
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batching import Batching
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import OwnWrites
from sparkinesis.stream.calls import client
from sparkinesis.stream.calls.answers import decoding
from sparkinesis.stream.reading.budget import Pace
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.shard import Lineage
from sparkinesis.worker import user_methods as calling
from sparkinesis.worker.batches import page_rows
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpoint_rules import Permitted
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard import delivery, selection, starting
from sparkinesis.worker.lifecycle.shard.consumer import ShardConsumer
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.intake import Intake
from sparkinesis.worker.lifecycle.worker_state import WorkerState
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.reporting.measures import ShardMeasures
from sparkinesis.worker.reporting.shard_reporter import ShardReporter
from sparkinesis.worker.retrieval.ahead import FetchAhead
from sparkinesis.worker.retrieval.memory import MemoryBudget
from tests.simulation.patches import (
    always,
    begin_anew,
    behind_aggregates,
    believe,
    believe_conditions,
    believe_listing,
    checkpoint_first,
    children_at_latest,
    counted_too,
    deaf,
    deleted_unless_told,
    drop_first,
    early_end,
    filter_all,
    forgetful,
    grant_all,
    keep_memory,
    keys_only,
    last_page,
    latest_again,
    no_floor,
    one_by_one,
    renewed_if,
    silent_end,
    silent_reset,
    skip_failed,
    sure,
    swallow,
    too_far,
    twice,
    unfenced,
    untried,
    whole_records,
    without_doubt,
)
from tests.simulation.subject import Bug, instead

_READS = "readers_resume_where_they_should"
_LOST = "leases_are_lost_for_a_reason"
_OWNS = "only_the_owner_checkpoints"

BUGS: dict[str, Bug] = {
    # leases
    "checkpoints are not fenced by the counter": instead(
        requests, "checkpoint", unfenced, _OWNS, 6
    ),
    "renewals are not fenced by the counter": instead(requests, "renew", unfenced, _OWNS, 15),
    "a lease is held for ever": instead(
        HeldLease,
        "is_held",
        lambda _: lambda self: self._lost is None,
        "expired_leases_are_not_processed",
        0,
    ),
    "a write whose answer was lost is taken for another worker's": instead(
        requests, "_fenced", always(()), _OWNS, 6
    ),
    "a twin with the same worker id is taken for oneself": instead(
        held, "resolve_conflict", believe, _OWNS, 35
    ),
    "a late write of one's own is taken for a twin's": instead(
        OwnWrites, "may_have_made", always(False), "only_a_twin_ends_a_worker", 29
    ),
    "leases are not released": instead(
        HeldLease,
        "release",
        lambda _: lambda self, *_: self.lose("it was given up"),
        "workers_leave",
        0,
    ),
    "dead workers are not noticed": instead(
        taker._Snapshot, "_age", always(0.0), "every_shard_is_read", 0
    ),
    "each lease is renewed by a call of its own": instead(
        LeaseRenewer, "_send", one_by_one, "leases_are_renewed_together", 2
    ),
    "a throttled statement counts as renewed": instead(
        lease_batch,
        "outcome_of",
        renewed_if("ThrottlingError", "ProvisionedThroughputExceeded"),
        _LOST,
        11,
    ),
    "a refused statement counts as renewed": instead(
        lease_batch,
        "outcome_of",
        renewed_if("ConditionalCheckFailed"),
        "leases_are_renewed_together",
        2,
    ),
    "an internal error of a statement that took effect is a lost lease": instead(
        lease_batch, "outcome_of", sure, _LOST, 11
    ),
    "all statements are sent again where one has failed": instead(
        lease_batch, "is_unsettled", always(True), _LOST, 11
    ),
    "a batch with unknown outcome is repeated without a read": instead(
        LeaseTable, "try_write", without_doubt, _LOST, 2
    ),
    "batches are trusted without a probe": instead(
        Batching, "_probe", believe_conditions, "expired_leases_are_not_processed", 118
    ),
    "a refusal without a row is taken for a deleted row": instead(
        LeaseTable, "_refused", deleted_unless_told, _LOST, 1
    ),
    "taking a lease drops foreign attributes": instead(
        requests, "take", forgetful, "foreign_attributes_stay", 15
    ),
    "a reset does not fence the owner": instead(
        requests, "reset", silent_reset, "everything_is_processed", 6
    ),
    # shards
    "parents are not waited for": instead(
        LeaseCoordinator, "are_finished", always(True), "parents_come_first", 1
    ),
    "children get no leases": instead(
        ShardEnds, "create_child_leases", always(True), "finished_leases_have_children", 0
    ),
    "a shard end that names no children has none": instead(
        ShardEnds, "_listed_children", always(()), "finished_leases_have_children", 3
    ),
    "a listing from before the shard's end is trusted": instead(
        Lineage, "children_of_ended", believe_listing, "finished_leases_have_children", 503
    ),
    "children begin at the latest record": instead(
        shard_ends, "plan_children", children_at_latest, "leases_begin_where_they_should", 0
    ),
    "missing leases are not repaired": instead(
        ShardSyncer, "_audit", always(None), "every_shard_is_read", 69
    ),
    "finished leases are not deleted": instead(
        ShardSyncer, "_clean_up", always(None), "nothing_is_left_to_clean_up", 0
    ),
    "finished leases are deleted at once": instead(
        shard_syncer,
        "deletable",
        lambda _: lambda leases, shards: [lease for lease in leases if lease.is_finished],
        "leases_are_deleted_in_time",
        0,
    ),
    "only the last page of shards is read": instead(
        client.StreamClient, "list_shards", last_page, "leases_are_deleted_in_time", 8
    ),
    # checkpoints
    "a batch is checkpointed before it is processed": instead(
        Deliverer, "deliver_next", checkpoint_first, "checkpoints_are_requested", 0
    ),
    "failed records may be checkpointed": instead(
        Checkpointer, "take_back", always(None), _READS, 14
    ),
    "a checkpoint of one record covers the whole batch": instead(
        Permitted,
        "resolve",
        lambda resolve: lambda self, sequence, sub: resolve(self, None, None),
        _READS,
        2,
    ),
    "an earlier checkpoint overwrites a later one": instead(
        held, "_is_behind", always(False), "checkpoints_never_go_back", 41
    ),
    "sub-sequence numbers are not kept": instead(
        Permitted, "resolve", whole_records, "checkpoints_that_return_are_stored", 1
    ),
    "a checkpoint that cannot be written is dropped silently": instead(
        HeldLease, "checkpoint", swallow, "checkpoints_that_return_are_stored", 10
    ),
    # where reading begins and goes on
    "a shard is resumed after the whole aggregate": instead(
        starting, "start_position", behind_aggregates, _READS, 19
    ),
    "processed user records of an aggregate are repeated": instead(
        RecordBatch, "after", lambda _: lambda self, done: self, _READS, 1
    ),
    "the record after a checkpoint is dropped": instead(
        RetentionCheck, "check_start", drop_first, _READS, 0
    ),
    "an expired iterator starts over": instead(ShardCursor, "fetch", begin_anew, _READS, 0),
    "records that a server repeats are repeated": instead(
        EarlyRecordFilter, "apply", lambda _: lambda self, fetched: fetched, _READS, 8
    ),
    "latest is a new time at each start": instead(
        starting, "start_position", latest_again, _READS, 42
    ),
    "failed fetching is not restarted": instead(
        FetchAhead, "take", swallow, "everything_is_processed", 5
    ),
    "the last record of a shard is lost": instead(Intake, "take", early_end, _READS, 2),
    "expired records are not reported": instead(
        RetentionCheck, "report_loss", always(None), _READS, 25
    ),
    "a processor's reset is not followed": instead(
        Checkpointer, "take_reset", lambda take: lambda self: take(self) and None, _READS, 15
    ),
    "old records within a page are not skipped": instead(
        selection, "drop_older", lambda _: lambda records, bound: records, _READS, 4
    ),
    "younger records are skipped too": instead(ConsumerSettings, "skip_before", too_far, _READS, 4),
    "a machine's clock is trusted": instead(
        client, "service_time", lambda _: lambda headers, local_ms, *_: local_ms, _READS, 4
    ),
    "shards are polled without a limit": instead(
        WorkerOptions, "pace", lambda _: Pace(0.0, 0.0), "shards_are_not_read_too_fast", 0
    ),
    "every record is filtered by the hash range": instead(
        page_rows, "make_objects", filter_all, _READS, 1
    ),
    "records without a key are dropped": instead(
        decoding, "_DECODER", keys_only, "everything_is_processed", 1
    ),
    # memory
    "the memory of a lost lease is not released": instead(
        FetchAhead, "stop", keep_memory, "memory_is_given_back", 9
    ),
    "an empty shard waits for memory": instead(
        MemoryBudget, "_grant", no_floor, "empty_shards_get_memory_at_once", 27
    ),
    "pages are fetched without memory for them": instead(
        MemoryBudget, "_grant", grant_all, "memory_is_within_its_budget", 27
    ),
    # processors that fail, and the end
    "a call's return value is ignored": instead(calling, "unfinished", always(None), _READS, 10),
    "a failed batch is skipped": instead(Deliverer, "_failed", skip_failed, _READS, 2),
    "half of a failed batch is lost": instead(
        RecordBatch,
        "halves",
        lambda halves: lambda self: (halves(self)[1], halves(self)[1].slice(0, 0)),
        _READS,
        14,
    ),
    "a dead-letter target's error is ignored": instead(delivery, "last_resort", deaf, _READS, 77),
    "the last record of a failed batch is given up untried": instead(
        Deliverer, "_put_off", untried, "records_given_up_were_tried_alone", 212
    ),
    "a stopped shard is taken again": instead(
        WorkerState,
        "busy_leases",
        lambda _: lambda self: frozenset(self.consumers),
        "stopped_shards_are_left_alone",
        5,
    ),
    "failed calls count as processed": instead(
        ShardMeasures, "processing_failed", counted_too, "records_are_counted", 2
    ),
    "failures are told twice": instead(
        ShardReporter, "batch_failed", twice, "failures_are_counted", 2
    ),
    "shutdown_requested is not called": instead(
        ShardConsumer,
        "_notify_of_shutdown",
        always(None),
        "shutdown_is_requested_before_release",
        0,
    ),
    "final calls are not made": instead(
        ShardConsumer, "_shut_down", silent_end, "readers_get_a_final_call", 0
    ),
}
