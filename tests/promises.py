"""The tests of what the docs promise, by a stable name: a property, an option, a call, a policy.

``make test ARGS="--promise NAME"`` runs them. A test that is named for an option fails if the
option is ignored. `tests/unit/test_promises.py` compares these names with those in the docs.
"""
# ruff: noqa: E501

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent

_TABLE = """
# Queries
P1:
    properties/test_p1_determinism.py
    properties/test_removed_streams.py
    spark/test_p2_no_gap_no_overlap.py
P2:
    properties/test_p2_faults.py
    spark/test_p2_no_gap_no_overlap.py
    unit/source/planning/test_batch_end.py
P3: properties/test_p3_parents_first.py
P4: spark/test_p4_nothing_outside_checkpoint.py
P5: properties/test_p5_idle_stream.py
P6:
    properties/test_p6_limits.py
    properties/test_p10_time.py::test_p6_a_limit_below_the_number_of_shards_holds
    unit/source/planning/test_batch_instant.py
P7: properties/test_p7_call_budget.py
P8: properties/test_p8_data_loss.py
P9: properties/test_p9_skip_older.py
P10:
    properties/test_p10_time.py
    spark/test_p10_active_users.py
    spark/test_p10_watermark.py
    unit/source/planning/test_batch_instant.py

# Record processors
W1:
    integration/worker/test_w1_order.py
    integration/worker/test_fleet.py
    unit/worker/lifecycle/shard/test_states.py
    unit/lease/rules/test_children.py
W2:
    integration/worker/test_kills.py
    integration/worker/test_w2_checkpoints.py
    integration/worker/test_automatic_checkpoints.py
    unit/worker/test_checkpointer.py
    unit/worker/lifecycle/shard/test_automatic_checkpoints.py
W9:
    integration/worker/test_exactly_once.py
    integration/worker/test_returned_start.py
    integration/lease/test_fencing.py
    unit/lease/table/test_fencing.py
    unit/worker/lifecycle/shard/test_starting.py
W3:
    integration/worker/test_w3_errors.py
    integration/worker/test_dead_letters_command.py
    unit/worker/dead_letters/test_targets.py
W4:
    integration/worker/test_w4_shutdown.py
    integration/worker/test_fleet.py
W5:
    integration/worker/test_w5_reset.py
    unit/lease/rules/test_reset_plan.py
W6: integration/worker/test_w6_skip_older.py
W7: integration/compat
W8:
    integration/worker/test_parquet_sink.py
    unit/worker/sink/test_sink.py
    spark/test_parquet_sink.py
W10:
    integration/worker/test_processes.py
    integration/worker/test_kills.py
    unit/worker/supervision/test_process_launcher.py
    unit/worker/supervision/test_processes.py
    unit/worker/supervision/test_supervisor_state.py

# Several streams
S1:
    integration/worker/test_s1_doors.py
    integration/worker/test_s1_many_streams.py
    integration/worker/test_s1_several_streams.py
    integration/lease/test_java_rows.py
    unit/worker/supervision/test_unread.py
    simulation/several
S2:
    integration/worker/test_s1_trouble.py
    unit/worker/supervision/test_unread.py

# Leases
L1:
    unit/lease/table/test_requests.py
    unit/lease/test_lease.py
    integration/lease
    integration/worker/test_java_tables.py
L2:
    unit/lease/rules/test_taker.py
    integration/lease/test_held.py
    integration/worker/test_fleet.py
L3:
    unit/lease/rules/test_taker.py
    integration/worker/test_l3_balance.py
    integration/worker/test_fleet.py
L4:
    unit/lease/rules/test_shard_sync.py
    unit/lease/rules/test_audit.py
    unit/lease/rules/test_audit.py
L5:
    hostile/test_many_shards.py::test_a_fleet_shares_the_leases_with_a_few_calls_for_each
    integration/lease/test_many_leases.py
    integration/lease/test_first_start.py
    unit/lease/shards/test_creation.py
L8:
    unit/lease/rules/test_row_streams.py
    integration/lease/test_other_streams.py
    integration/worker/test_l8_other_streams.py
    unit/worker/lifecycle/streams/test_open_stream.py
L6:
    integration/lease/test_foreign_servers.py
    unit/lease/table/test_batching.py

# Everything else
M3:
    integration/worker/test_health.py
    unit/metrics/health
    unit/worker/lifecycle/test_loops.py
U1:
    page
    integration/ui
    unit/ui
U3:
    unit/stream/test_credentials.py
    unit/metrics/test_repeats.py
    unit/worker/lifecycle/shard/test_lag.py
    unit/worker/lifecycle/shard/test_shard_view.py
    integration/worker/test_u3_lag.py
    unit/monitor/doctor/test_application_checks.py
threads: unit/worker/retrieval/test_step_pool.py
memory:
    unit/worker/retrieval/test_memory.py
    integration/worker/test_memory.py
one-consumer: integration/worker/test_fan_out.py
many-subscriptions: integration/worker/test_many_subscriptions.py
subscriptions:
    integration/stream
    unit/stream/calls/test_subscription.py
    unit/stream/fan_out/test_interruption.py
local-server:
    integration/local/test_web_pages.py
    integration/local/test_unfinished_requests.py
any-input:
    hostile
    unit/stream/calls/answers/test_cbor.py
direct-calls: integration/stream/direct
other-servers:
    properties/test_other_servers.py
    integration/lease/test_shard_syncer.py::test_children_that_no_end_has_named_are_listed_by_one_call
    integration/worker/test_closed_shards.py
    integration/worker/test_answers_like_ends.py
    integration/worker/test_out_of_order.py
    integration/stream/test_cursor.py::test_a_page_that_stays_bad_is_an_error_that_names_its_place_and_is_fetched_anew
    integration/stream/test_cursor.py::test_only_a_closed_shard_ends
    integration/stream/test_following.py::test_an_answer_like_that_of_an_end_ends_nothing
    integration/stream/test_fan_out_endings.py::test_a_task_reads_a_closed_shard_to_its_end
secrets:
    properties/test_credentials.py
    spark/test_credentials.py
    unit/stream/test_credentials.py
fleet-events: spark/test_fleet.py
fleet-streams:
    unit/worker/supervision/test_unread.py
    unit/fleet/test_executor_worker.py::test_streams_are_reported_when_they_change
fleet-slots: unit/worker/supervision/test_roster.py
fleet-strangers: unit/fleet/test_control_server.py
fleet-failures:
    unit/worker/supervision/test_gathered_reports.py
    unit/fleet/test_fleet.py
tail-and-put:
    integration/cli/test_tail_and_put.py
    integration/stream/test_following.py
    unit/cli/streams/test_put.py
    unit/cli/streams/test_put.py
    unit/cli/streams/test_record_objects.py
check-order:
    unit/cli/streams/test_order_check.py
    integration/cli/test_tail_and_put.py
doctor-records:
    unit/monitor/doctor/test_record_checks.py
    integration/worker/test_doctor_command.py::test_a_sample_of_records_shows_what_their_producers_do
writing:
    properties/test_sink_delivery.py
    spark/test_sink.py
tables:
    unit/source/test_row_columns.py
    spark/test_sql.py
    spark/test_wrong_statements.py
fleet-end:
    unit/fleet/test_executor_worker.py
    unit/fleet/test_driver_link.py
fleet-secret:
    unit/fleet/test_channel.py
    unit/fleet/test_channel_tls.py
    unit/fleet/test_executor_worker.py

# Options of queries
streamName: properties/test_removed_streams.py::test_a_stream_may_take_the_place_of_another
streamARN: unit/source/options/test_option_table.py::test_an_arn_says_name_and_region
region: unit/source/options/test_option_table.py::test_every_region_that_has_kinesis_may_be_given
endpoint: properties/test_removed_streams.py::test_a_stream_may_take_the_place_of_another
profile: properties/test_credentials.py::test_a_profile_is_what_signs
roleArn, roleExternalId, roleSessionName, stsEndpoint: properties/test_credentials.py::test_the_role_signs_and_is_assumed_once_in_a_process
initialPosition:
    properties/test_p1_determinism.py::test_p1_a_crash_in_the_first_batch_replays_it_from_the_same_place
    properties/test_application_position.py::test_the_first_rows_are_those_behind_the_checkpoint_inside_an_aggregate
dynamodbEndpoint: unit/source/options/test_option_table.py::test_a_local_kinesis_is_the_dynamodb_as_well
startingPosition, endingPosition: properties/test_batch_read.py::test_instants_cut_reads_without_gap_or_overlap_and_the_end_is_exclusive
columns: spark/test_columns.py unit/stream/reading/test_arrow.py::test_some_columns_are_those_of_all
filterPushdown: spark/test_batch_read.py::test_pushed_filters_read_less
failOnDataLoss: properties/test_p8_data_loss.py::test_p8_a_position_that_retention_has_trimmed_stops_the_query
removedStreams: properties/test_removed_streams.py::test_a_query_goes_on_without_a_removed_stream spark/test_union.py
deaggregate: properties/test_application_position.py::test_records_as_stored_come_again_when_not_all_of_them_is_done
minFetchPeriod: properties/test_p5_idle_stream.py::test_p5_an_idle_stream_of_8_shards_costs_60_calls_per_shard_and_minute
consumerMode, consumerName: properties/test_fan_out.py::test_the_consumer_is_registered_before_anything_is_read_and_kept
requireConsumerDeregistration: properties/test_fan_out.py::test_the_consumer_of_every_stream_is_deregistered_if_asked_for
maxRecordsPerFetch: properties/test_p1_determinism.py::test_p1_the_size_of_the_pages_does_not_matter
skipOlderThan: properties/test_p9_skip_older.py::test_p9_an_old_checkpoint_goes_on_at_the_bound
maxRecordsPerTrigger: properties/test_p6_limits.py::test_p6_a_days_records_come_in_batches_within_ten_percent_of_the_limit
maxBytesPerTrigger: properties/test_p6_limits.py::test_p6_bytes_are_limited_too_and_the_tighter_limit_counts
minRowsPerTrigger: properties/test_min_rows.py::test_a_batch_waits_for_its_rows
maxTriggerDelay: properties/test_min_rows.py::test_a_batch_waits_for_the_delay_at_most
maxShardDrift:
    properties/test_p10_time.py::test_p10_shards_are_apart_by_the_drift_at_most
    properties/test_p10_time.py::test_p10_is_given_up_where_drift_is_unbounded
shardCallsPerSecond:
    unit/source/options/test_option_table.py::test_limits_can_be_lifted_for_a_local_kinesis
    properties/test_p7_call_budget.py
shardBytesPerSecond: unit/source/options/test_option_table.py::test_limits_can_be_lifted_for_a_local_kinesis

# Options of writes
ordered: properties/test_sink_delivery.py::test_no_row_is_lost_and_order_is_kept_while_calls_fail
aggregation: properties/test_sink_delivery.py::test_the_public_deaggregator_reads_the_aggregates
aggregationMaxSize: unit/source/test_writing.py::test_an_aggregate_with_its_key_is_no_larger_than_a_record_may_be
maxRecordSize: properties/test_sink_delivery.py::test_a_row_that_cannot_be_a_record_stops_its_batch_before_anything_is_put

# Options of workers and fleets
WorkerOptions.failover_time:
    integration/worker/test_l3_balance.py::test_leases_are_taken_by_the_options
    simulation/test_takeover.py::test_leases_that_nobody_renews_are_taken_after_the_failover_time
    unit/lease/rules/test_taker.py::test_liveness_is_a_counter_that_moves
WorkerOptions.max_leases:
    integration/worker/test_l3_balance.py::test_leases_are_taken_by_the_options
    unit/lease/rules/test_taker.py::test_no_more_than_the_worker_may_have
WorkerOptions.max_leases_to_steal:
    integration/worker/test_l3_balance.py::test_leases_are_taken_by_the_options
    unit/lease/rules/test_taker.py::test_no_more_stolen_than_allowed
WorkerOptions.balance:
    integration/lease/test_assignment.py::test_the_first_worker_leads_and_gives_the_second_its_share
    integration/worker/test_fleet.py::test_a_fleet_through_crashes_pauses_shutdowns_and_reshards
WorkerOptions.handoff_timeout:
    integration/worker/test_l3_balance.py::test_leases_are_taken_by_the_options
    unit/lease/rules/test_taker.py::test_a_handoff_whose_time_is_up
WorkerOptions.retrieval, WorkerOptions.fan_out: integration/worker/test_fan_out.py::test_the_consumer_is_the_applications_or_the_one_named
WorkerOptions.max_records: integration/worker/test_polling_pace.py::test_a_shard_is_polled_by_the_options
WorkerOptions.max_held_bytes: integration/worker/test_memory.py::test_workers_of_a_process_share_its_memory
WorkerOptions.max_pages_ahead, WorkerOptions.max_bytes_ahead, WorkerOptions.max_records_ahead: unit/worker/test_options.py::test_fetching_ahead_and_the_care_for_leases_have_the_limits_of_their_options
WorkerOptions.idle_time:
    integration/worker/test_polling_pace.py::test_a_shard_is_polled_by_the_options
    unit/worker/retrieval/test_ahead.py::test_idle_shards_are_polled_together
WorkerOptions.shard_calls_per_second:
    integration/worker/test_polling_pace.py::test_calls_on_a_shard_are_as_far_apart_as_the_option_says
    integration/worker/test_polling_pace.py::test_iterators_are_asked_for_at_the_same_pace
WorkerOptions.shard_bytes_per_second: integration/worker/test_polling_pace.py::test_large_pages_are_as_far_apart_as_their_bytes
WorkerOptions.call_even_for_empty_batches: integration/worker/test_w3_errors.py::test_skipped_records_are_told_and_may_be_checkpointed
WorkerOptions.deaggregate: integration/worker/test_seams.py::test_the_rest_of_an_aggregated_record_is_delivered_whole_to_who_does_not_unpack
WorkerOptions.hash_range_filter: integration/worker/test_hash_filter.py::test_what_a_kpl_puts_again_after_a_reshard_is_dropped
WorkerOptions.skip_older_than: integration/worker/test_w6_skip_older.py::test_resuming_too_far_behind_goes_on_at_the_bound
WorkerOptions.processing_time_limit: integration/worker/test_processing_time_limit.py::test_a_slow_call_is_reported_once
WorkerOptions.standstill_warning: integration/worker/test_u3_lag.py::test_a_call_that_fails_again_and_again_stands_still
WorkerOptions.give_up_after_limit: integration/worker/test_processing_time_limit.py::test_another_worker_goes_on_from_the_last_checkpoint
WorkerOptions.checkpoint_seconds: unit/worker/lifecycle/shard/test_automatic_checkpoints.py::test_what_is_processed_waits_no_longer_than_it_may_also_without_more_records
WorkerOptions.checkpoint_records: unit/worker/lifecycle/shard/test_automatic_checkpoints.py::test_each_so_many_records_are_checkpointed_however_large_the_batches
WorkerOptions.concurrency: integration/worker/test_ways.py::test_keys_run_at_the_same_time_and_each_in_order
WorkerOptions.parents_first: integration/worker/test_w1_order.py::test_children_begin_while_their_parent_is_read
WorkerOptions.parent_poll_interval: integration/worker/test_w1_order.py::test_a_merged_shard_waits_for_the_slower_of_its_parents
WorkerOptions.task_backoff: unit/worker/lifecycle/shard/test_delivery.py::test_a_refusing_target_is_asked_again_ever_more_slowly_and_the_processor_is_not
WorkerOptions.audit_interval: integration/worker/test_events.py::test_leases_that_are_created_missing_and_deleted
WorkerOptions.audit_confidence:
    unit/worker/test_options.py::test_fetching_ahead_and_the_care_for_leases_have_the_limits_of_their_options
    integration/lease/test_shard_syncer.py::test_a_lease_that_tells_when_the_application_began_stays_until_an_audit_has_read_it
WorkerOptions.cleanup_interval, WorkerOptions.cleanup_leases:
    unit/worker/test_options.py::test_fetching_ahead_and_the_care_for_leases_have_the_limits_of_their_options
    integration/lease/test_many_streams.py::test_a_cleanup_reads_the_leases_of_its_stream_only
WorkerOptions.metrics: integration/worker/test_metrics.py::test_failures_splits_retries_skips_and_a_reshard
WorkerOptions.http: integration/worker/test_health.py::test_a_worker_is_live_ready_and_tells_what_it_processed
WorkerOptions.unhealthy_after_limit: integration/worker/test_health.py::test_a_call_beyond_the_limit_makes_it_false_only_if_asked
WorkerOptions.on_event: integration/worker/test_events.py::test_leases_that_are_created_missing_and_deleted
WorkerOptions.shutdown_timeout: integration/worker/test_w4_shutdown.py::test_a_processor_that_hangs_does_not_hold_up_another_processors_shutdown
WorkerOptions.table: integration/worker/test_deleted_table.py::test_a_new_table_is_as_the_options_say
FanOutOptions.consumer_name: integration/worker/test_fan_out.py::test_the_consumer_is_the_applications_or_the_one_named
FanOutOptions.consumer_arn: integration/worker/test_fan_out.py::test_nothing_is_registered_or_described_for_an_arn
FanOutOptions.fall_back_to_polling: integration/worker/test_fan_out.py::test_polling_takes_over_if_the_options_say_so
FanOutOptions.deregister: integration/worker/test_fan_out.py::test_the_last_worker_deregisters_the_consumer
FleetOptions.heartbeat_interval:
    unit/fleet/test_fleet.py::test_the_options_reach_spark_and_the_workers
    unit/worker/supervision/test_roster.py::test_a_cancel_that_did_nothing_is_repeated
FleetOptions.lost_after:
    unit/fleet/test_fleet.py::test_the_options_reach_spark_and_the_workers
    unit/worker/supervision/test_roster.py::test_a_silent_worker_is_dropped_and_has_time_to_come_again
FleetOptions.host, FleetOptions.bind, FleetOptions.port: unit/fleet/test_fleet.py::test_the_options_reach_spark_and_the_workers
FleetOptions.first_backoff, FleetOptions.longest_backoff: unit/worker/supervision/test_roster.py::test_backoff_doubles_up_to_its_limit
FleetOptions.job_group: unit/fleet/test_fleet.py::test_the_options_reach_spark_and_the_workers
FleetOptions.log_level:
    unit/fleet/test_fleet.py::test_the_options_reach_spark_and_the_workers
    unit/worker/reporting/test_log_context.py::test_nothing_of_the_block_is_left

# Sinks, metrics, streams
ParquetSink.path: unit/worker/sink/test_sink.py::test_a_file_tells_where_it_is_from
ParquetSink.schema: unit/worker/sink/test_sink.py::test_rows_are_cast_and_what_a_dict_lacks_is_null
ParquetSink.partition_by: unit/worker/sink/test_sink.py::test_rows_go_to_directories_as_sparks_do
ParquetSink.max_bytes: unit/worker/sink/test_sink.py::test_a_sink_is_due_by_size_and_a_huge_write_makes_several_files
ParquetSink.max_age: unit/worker/sink/test_sink.py::test_a_sink_is_due_by_the_age_of_its_oldest_row
ParquetSink.filesystem: unit/worker/sink/test_sink.py::test_other_file_systems
ParquetSink.compression: unit/worker/sink/test_sink.py::test_files_are_compressed_as_asked_for
CloudWatchMetrics.namespace, CloudWatchMetrics.level, CloudWatchMetrics.shard_metrics, CloudWatchMetrics.worker_metrics, CloudWatchMetrics.own_metrics: unit/metrics/cloudwatch/test_data.py::test_what_is_published_is_what_the_options_say
CloudWatchMetrics.region, CloudWatchMetrics.credentials, CloudWatchMetrics.endpoint: integration/worker/test_cloudwatch.py::test_region_and_credentials_are_the_applications_unless_others_are_given
CloudWatchMetrics.flush_every: unit/metrics/cloudwatch/test_data.py::test_what_is_published_is_what_the_options_say
CloudWatchMetrics.max_series:
    unit/metrics/cloudwatch/test_data.py::test_what_is_published_is_what_the_options_say
    unit/metrics/cloudwatch/test_publisher.py::test_an_outage_of_hours_holds_no_more_than_it_may
StreamConfig.stream: unit/worker/test_options.py::test_a_streams_own_settings_go_before_the_applications
StreamConfig.processor: integration/worker/test_s1_several_streams.py::test_the_processor_and_the_position_of_a_stream_are_its_own
StreamConfig.on_error: unit/worker/test_options.py::test_a_streams_own_settings_go_before_the_applications
StreamConfig.initial_position: integration/worker/test_s1_several_streams.py::test_the_processor_and_the_position_of_a_stream_are_its_own
StreamConfig.region: unit/worker/test_options.py::test_a_streams_own_settings_go_before_the_applications
StreamConfig.endpoint: integration/worker/test_s1_trouble.py::test_streams_of_two_servers_are_read_by_one_application
StreamConfig.credentials, StreamConfig.consumer_arn: unit/worker/test_options.py::test_a_streams_own_settings_go_before_the_applications

# Calls and policies; an argument follows behind a dot
checkpointer.checkpoint:
    unit/worker/test_checkpointer.py::test_a_checkpoint_within_what_was_delivered
    integration/worker/test_w2_checkpoints.py::test_resuming_in_the_middle_of_an_aggregated_record
checkpointer.prepare: integration/worker/test_w2_checkpoints.py::test_what_was_prepared_is_found_by_whoever_comes_next
checkpointer.prepare.state: integration/worker/test_w2_checkpoints.py::test_a_prepared_state_may_be_as_large_as_it_is_said
checkpointer.commit_pending: integration/worker/test_w2_checkpoints.py::test_a_pending_checkpoint_is_committed_at_once
checkpointer.drop_pending: integration/worker/test_w2_checkpoints.py::test_a_pending_checkpoint_that_is_dropped_is_gone_and_its_records_come_again
checkpointer.reset:
    integration/worker/test_w2_checkpoints.py::test_a_processor_moves_its_own_shard
    integration/worker/test_w2_checkpoints.py::test_a_processor_skips_to_now_and_the_table_remembers_when
worker.pause:
    integration/worker/test_pausing.py::test_nothing_is_read_or_delivered_until_the_shard_is_resumed
    integration/worker/test_pausing.py::test_all_shards_are_paused_also_those_that_come_later
    integration/worker/test_pausing.py::test_a_pause_ends_with_the_lease
    integration/worker/test_pausing.py::test_records_that_expire_during_a_pause_are_told_as_lost
    integration/worker/test_pausing.py::test_a_paused_shard_has_an_age_and_no_lag
worker.resume: integration/worker/test_pausing.py::test_a_pause_too_short_to_be_noticed_does_no_harm
worker.restart:
    integration/worker/test_restart.py::test_its_program_restarts_a_shard_from_its_checkpoint
    integration/worker/test_restart.py::test_an_operator_restarts_a_shard_on_all_workers
    integration/worker/test_restart.py::test_a_restart_of_what_is_not_stopped_is_refused
shard.pause, shard.resume: integration/worker/test_pausing.py::test_a_processor_pauses_its_own_shard_and_a_thread_of_its_own_resumes_it
application.replay:
    integration/worker/test_replay.py::test_the_records_of_the_range_are_processed_again_and_the_live_application_is_untouched
    integration/worker/test_replay.py::test_shards_that_ended_in_the_range_end_and_their_children_follow
    integration/worker/test_replay.py::test_the_table_is_deleted_after_an_error
    integration/worker/test_replay.py::test_a_signal_ends_a_replay_and_only_kill_9_leaves_its_table
    integration/worker/test_replay.py::test_a_scan_that_misses_a_child_does_not_end_the_replay
    integration/worker/test_replay.py::test_a_range_that_cannot_be_replayed_is_refused
    unit/worker/lifecycle/test_replay.py
application.replay.to: integration/worker/test_replay.py::test_until_now_ends_at_the_tip
application.replay.processor: integration/worker/test_replay.py::test_another_processor_may_be_a_function
Retry: integration/worker/test_w3_errors.py::test_a_retry_delivers_the_same_records_until_they_succeed
Retry.attempts: unit/worker/test_on_error.py::test_attempts_are_calls_in_all
Retry.then: integration/worker/test_w3_errors.py::test_only_the_bad_records_of_a_batch_are_given_up
Skip: integration/worker/test_w3_errors.py::test_skipped_records_are_told_and_may_be_checkpointed
DeadLetter:
    integration/worker/test_w3_errors.py::test_dead_letters_to_a_stream_keep_their_keys_and_data
    integration/worker/test_w3_errors.py::test_dead_letters_to_a_directory_are_whole_and_there_once
    integration/worker/test_w3_errors.py::test_a_shard_does_not_go_on_without_its_dead_letter_target
Stop: integration/worker/test_w3_errors.py::test_stop_leaves_the_shard_to_other_workers
FormerStreams, FormerStreams.delete_after: integration/worker/test_s1_trouble.py::test_a_stream_that_was_deleted_stops_none_and_its_leases_go
FormerStreams.only:
    unit/lease/rules/test_audit.py::test_only_those_that_the_user_names
    integration/worker/test_s1_trouble.py::test_a_function_for_former_streams_that_returns_rubbish_deletes_nothing
"""
"""Names, and behind or below them their tests: functions, files and folders."""


def _read(table: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for entry in re.split(
        r"^(?=\w)", re.sub(r"^#.*", "", table, flags=re.MULTILINE), flags=re.MULTILINE
    )[1:]:
        names, tests = re.split(r":\s", entry, maxsplit=1)
        found |= dict.fromkeys(names.split(", "), tuple(tests.split()))
    return found


PROMISES = _read(_TABLE)


def look_up(name: str) -> tuple[str, ...]:
    """Return the tests of a promise. Raises `LookupError`, which names the most similar ones."""
    known = {each.lower(): each for each in PROMISES}
    if found := known.get(name.lower()):
        return PROMISES[found]
    raise LookupError(
        f"There is no promise {name!r}. The most similar: {', '.join(nearest(name))}."
    )


def nearest(name: str) -> Iterable[str]:
    """Return the most similar names; that of an option is compared without its class, too."""
    known: dict[str, str] = {}
    for each in PROMISES:
        known |= {each.lower(): each, each.rpartition(".")[2].lower(): each}
    last = name.rpartition(".")[2]
    close = [
        *difflib.get_close_matches(name.lower(), known, 3),
        *difflib.get_close_matches(last.lower(), known, 3),
    ]
    return dict.fromkeys(known[each] for each in close) or ("P1", "maxRecordsPerTrigger")
