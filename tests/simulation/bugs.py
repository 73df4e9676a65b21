"""Planted bugs in record processors, each as one change of the package."""

from __future__ import annotations

from tests.simulation.subject import planted

BUGS = planted("""
checkpoints are not fenced by the counter | only_the_owner_checkpoints
    lease.table.requests:checkpoint
    - _as_known(lease),
    + {},
renewals are not fenced by the counter | only_the_owner_checkpoints | rare
    lease.table.requests:renew
    - _as_known(lease)
    + {}
a lease is held for ever | expired_leases_are_not_processed
    lease.term:LeaseTerm.is_held
    + return self._lost is None
a write whose answer was lost is taken for another worker's | only_the_owner_checkpoints | rare
    lease.table.update:_fenced
    + return ()
a twin with the same worker id is taken for oneself | only_the_owner_checkpoints
    lease.table.write_conflict:resolve_conflict
    - return LeaseLoss(
    + return StillHeld(row)
    + return LeaseLoss(
a late write of one's own is taken for a twin's | only_a_twin_ends_a_worker | rare
    lease.table.write_conflict:OwnWrites.may_have_made
    + return False
leases are not released | workers_leave
    lease.held:HeldLease.release
    + self.lose("it was given up")
dead workers are not noticed | every_shard_is_read
    lease.rules.taker:_Snapshot._age
    + return 0.0
each lease is renewed by a call of its own | leases_are_renewed_together
    lease.renewer:LeaseRenewer._renew
    - self.batching.write([update for _, update in left])
    + [self.batching.write([update])[0] for _, update in left]
a throttled statement counts as renewed | leases_are_lost_for_a_reason
    lease.table.statements:outcome_of
    - said is None:
    + said is None or said["Code"] in {"ThrottlingError", "ProvisionedThroughputExceeded"}:
a refused statement counts as renewed | leases_are_renewed_together
    lease.table.statements:outcome_of
    - said is None:
    + said is None or said["Code"] == "ConditionalCheckFailed":
an internal error of a statement that took effect is a lost lease
    | leases_are_lost_for_a_reason
    lease.table.statements:outcome_of
    - return Failed(error, doubt)
    + return Failed(error, False)
all statements are sent again where one has failed | leases_are_lost_for_a_reason
    lease.table.statements:is_unsettled
    + return True
a batch with unknown outcome is repeated without a read | leases_are_lost_for_a_reason
    lease.table.table:LeaseTable.try_write
    - in_doubt=in_doubt
    + in_doubt=False
batches are trusted without a probe | expired_leases_are_not_processed | rare
    lease.table.batching:Batching._probe
    + self._is_proven = True
a refusal without a row is taken for a deleted row | leases_are_lost_for_a_reason
    lease.table.table:LeaseTable._refused
    - self._row(update.key) if item is None
    + None if item is None
taking a lease drops foreign attributes | foreign_attributes_stay
    lease.table.requests:take
    + update = was(lease, worker_id, at_least)
    + return replace(update, remove=(*update.remove, "note"))
a reset does not fence the owner | everything_is_processed
    lease.table.requests:reset
    + update = was(lease, at, timestamp_ms, now_ms, began_ms)
    + changes = {name: value for name, value in update.set.items() if name != "leaseCounter"}
    + return replace(update, set=changes, remove=())
parents are not waited for | parents_come_first
    lease.coordinator:LeaseCoordinator.are_finished
    + return True
children get no leases | finished_leases_have_children
    lease.shards.shard_ends:ShardEnds.create_child_leases
    + return True
a shard end that names no children has none | finished_leases_have_children
    lease.shards.shard_ends:ShardEnds._listed_children
    + return ()
a listing from before the shard's end is trusted | finished_leases_have_children | rare
    stream.shard:Lineage.children_of_ended
    + return self.children(shard_id)
children begin at the latest record | leases_begin_where_they_should
    lease.shards.shard_ends:ShardEnds.create_child_leases
    - missing = list(plan.create)
    + latest = type(parent.lease.checkpoint)("LATEST")
    + missing = [replace(one, checkpoint=latest) for one in plan.create]
missing leases are not repaired | every_shard_is_read | rare
    lease.shards.shard_syncer:ShardSyncer._audit
    + pass
finished leases are not deleted | nothing_is_left_to_clean_up
    lease.shards.shard_syncer:ShardSyncer._clean_up
    + pass
finished leases are deleted at once | leases_are_deleted_in_time
    lease.rules.audit:deletable
    + return [lease for lease in leases if lease.is_finished]
only the last page of shards is read | leases_are_deleted_in_time
    stream.calls.client:StreamClient.list_shards
    - shards += answer["Shards"]
    + shards = answer["Shards"]
a batch is checkpointed before it is processed | checkpoints_are_requested
    worker.lifecycle.shard.delivery:Deliverer.deliver
    - self.checkpointer.permit(last, batch)
    + self.checkpointer.permit(last, batch)
    + self.checkpointer.checkpoint()
failed records may be checkpointed | readers_resume_where_they_should
    worker.checkpointer:Checkpointer.take_back
    + pass
a checkpoint of one record covers the whole batch | readers_resume_where_they_should
    worker.checkpoint_rules:Permitted.resolve
    + return was(self, None, None)
an earlier checkpoint overwrites a later one | checkpoints_never_go_back | rare
    lease.held:_is_behind
    + return False
sub-sequence numbers are not kept | checkpoints_that_return_are_stored
    worker.checkpoint_rules:Permitted.resolve
    - return wanted
    + return ExtendedSequenceNumber(wanted.sequence_number)
a checkpoint that cannot be written is dropped silently | checkpoints_that_return_are_stored | rare
    lease.held:HeldLease.checkpoint
    + try:
    +     was(self, at, timestamp_ms, known=known, moved_ms=moved_ms)
    + except SparkinesisError:
    +     pass
a shard is resumed after the whole aggregate | readers_resume_where_they_should
    worker.lifecycle.shard.starting:start_position
    - return position
    + is_record = isinstance(position, AfterRecord)
    + return AfterRecord(position.sequence_number) if is_record else position
processed user records of an aggregate are repeated | readers_resume_where_they_should
    worker.batches.batch:RecordBatch.after
    + return self
the record after a checkpoint is dropped | readers_resume_where_they_should
    stream.reading.retention:RetentionCheck.check_start
    + records = was(self, shard_id, start, fetched)
    + return records[1:] if records else records
an expired iterator starts over | readers_resume_where_they_should
    stream.reading.shard_cursor:ShardCursor.fetch
    + place = self._position, self._inclusive
    + fetched = was(self, limit)
    + self._position, self._inclusive = place
    + self._early_filter.apply = lambda fetched: fetched
    + return fetched
records that a server repeats are repeated | readers_resume_where_they_should | rare
    stream.reading.early_records:EarlyRecordFilter.apply
    + return fetched
latest is a new time at each start | readers_resume_where_they_should
    worker.lifecycle.shard.starting:start_position
    - position = lease.position()
    + position = LATEST if lease.checkpoint.sequence_number == "LATEST" else lease.position()
failed fetching is not restarted | everything_is_processed
    worker.retrieval.waiting_pages:WaitingPages.take
    - raise error
    + return None, False
the last record of a shard is lost | readers_resume_where_they_should
    worker.lifecycle.shard.batcher:Batcher.take
    - return batch
    + return batch.slice(0, len(batch) - 1) if self.end is not None and batch else batch
expired records are not reported | readers_resume_where_they_should
    stream.reading.retention:RetentionCheck.report_loss
    + pass
a processor's reset is not followed | readers_resume_where_they_should | rare
    worker.checkpointer:Checkpointer.take_reset
    + was(self)
old records within a page are not skipped | readers_resume_where_they_should
    worker.lifecycle.shard.selection:drop_older
    + return records
younger records are skipped too | readers_resume_where_they_should
    worker.lifecycle.settings:ConsumerSettings.skip_before
    + bound = was(self, now_ms)
    + return None if bound is None else bound + 3_000
a machine's clock is trusted | readers_resume_where_they_should
    stream.timing:service_time
    + return local_ms
shards are polled without a limit | shards_are_not_read_too_fast
    worker.options:WorkerOptions.pace
    + return Pace(0.0, 0.0)
every record is filtered by the hash range | readers_resume_where_they_should
    stream.kpl.objects:make_objects
    + made, _ = was(records, make, shard_id, deaggregate=deaggregate)
    + if hash_range is None:
    +     return made, 0
    + from sparkinesis.stream.kpl.hash_filter import is_within
    + keys = [user.partition_key for user in made]
    + kept = [key is None or is_within(key, None, hash_range) for key in keys]
    + return [user for user, is_kept in zip(made, kept) if is_kept], kept.count(False)
records without a key are dropped | everything_is_processed
    stream.calls.answers.decoding:decode_page
    - page = decode_fetched(_DECODER, body)
    + page = decode_fetched(_DECODER, body)
    + if any(record.partition_key is None for record in page.records):
    +     raise msgspec.ValidationError("Object missing required field `PartitionKey`")
the memory of a lost lease is not released | memory_is_given_back
    worker.retrieval.ahead:FetchAhead.stop
    - pages = self.waiting.stop()
    + self.waiting.stop()
    + pages = []
an empty shard waits for memory | empty_shards_get_memory_at_once | rare
    worker.retrieval.memory:MemoryBudget._grant
    - size = min(want, self._room(account))
    + size = min(want, self._room(account))
    + if size < min(want, self.floor):
    +     return False
pages are fetched without memory for them | memory_is_within_its_budget | rare
    worker.retrieval.memory:MemoryBudget._grant
    - size = min(want, self._room(account))
    + size = want
a call's return value is ignored | readers_resume_where_they_should
    worker.processors.user_calls:unfinished
    + return None
a failed batch is skipped | readers_resume_where_they_should
    worker.lifecycle.shard.delivery:Deliverer._failed
    + self._pass(attempt.batch, attempt.batch.last if attempt.batch else None)
    + return 0.0
half of a failed batch is lost | readers_resume_where_they_should
    worker.batches.batch:RecordBatch.halves
    - self.slice(0, middle), self.slice(middle, len(self))
    + self.slice(middle, len(self)), self.slice(0, 0)
a dead-letter target's error is ignored | readers_resume_where_they_should | rare
    worker.lifecycle.shard.delivery:Deliverer._hand_over
    - hand_over(resort.target, self._failed_records(batch, error))
    + try:
    +     hand_over(resort.target, self._failed_records(batch, error))
    + except Exception:
    +     pass
the last record of a failed batch is given up untried | records_given_up_were_tried_alone | rare
    worker.lifecycle.shard.delivery:Deliverer._put_off
    + if pause == 0.0 and len(attempt.batch) == 1:
    +     return self._give_up(attempt, Exception())
    + return was(self, attempt, pause)
a stopped shard is taken again | stopped_shards_are_left_alone
    worker.lifecycle.worker_state:SharedState.busy_leases
    + return frozenset(self.consumers)
failed calls count as processed | records_are_counted
    worker.reporting.shard_reporter:ShardMeasures.processing_failed
    + was(self, began)
    + self.processed(1, lambda: 1, began)
failures are told twice | failures_are_counted
    worker.reporting.shard_reporter:ShardReporter.batch_failed
    + was(self, span, action, error)
    + was(self, span, action, error)
shutdown_requested is not called | shutdown_is_requested_before_release
    worker.lifecycle.shard.consumer:ShardConsumer._notify_of_shutdown
    + pass
final calls are not made | readers_get_a_final_call
    worker.lifecycle.shard.consumer:ShardConsumer._shut_down
    - self._processor.lease_lost()
    + pass
""")

FAN_OUT_BUGS = planted("""
a subscription resumes AT the continuation | readers_resume_where_they_should
    stream.fan_out.cursor:FanOutCursor._accept
    - self._inclusive = False
    + self._inclusive = True
    - self._early_filter.apply(fetched)
    + fetched
events of many records do not move the position | readers_resume_where_they_should
    stream.fan_out.cursor:FanOutCursor._accept
    - if number is not None:
    + if number is not None and len(event.records) < 2:
    - self._early_filter.apply(fetched)
    + fetched
a broken subscription starts over | readers_resume_where_they_should
    stream.fan_out.cursor:FanOutCursor._pause_or_raise
    + was(self, error, had_begun=had_begun)
    + self._position, self._inclusive = Sentinel.TRIM_HORIZON, False
    + self._early_filter.apply = lambda fetched: fetched
the end of a shard is taken for the end of a subscription | everything_is_processed
    stream.fan_out.cursor:FanOutCursor._accept
    + self._last_page = lambda: None
    + fetched = was(self, received, begun_ms)
    + self.at_end = False
    + return fetched
a shard ends only if its children are named | everything_is_processed
    stream.fan_out.cursor:FanOutCursor._last_page
    + return None
a silent subscription is never closed | everything_is_processed
    stream.fan_out.cursor:FanOutCursor.due_in
    + left = was(self, wake)
    + return float("inf") if left > 0 and self._current.subscription is not None else left
a deregistered consumer is not registered again | everything_is_processed
    worker.retrieval.fan_out:ConsumerRegistration.forget
    + pass
a refused subscription is retried at once | subscribe_calls_stay_within_limits
    stream.fan_out.interruption:pause_after
    + return 0.0
a lost lease's subscription stays open | subscriptions_end_with_their_leases
    worker.retrieval.fan_out:SubscribedShard.stop
    + pass
subscriptions are renewed each minute | subscriptions_are_kept
    stream.fan_out.current_subscription:RENEWAL
    + (40.0, 60.0)
every worker that leaves deregisters the consumer | the_last_worker_deregisters
    worker.lifecycle.consumer_loop:ConsumerLoop._is_last_reader
    + return True
the last worker does not deregister the consumer | the_last_worker_deregisters
    worker.lifecycle.consumer_loop:ConsumerLoop._is_last_reader
    + return False
""")

AWAY_BUGS = planted("""
shards without an ancestor begin at the latest record | leases_begin_where_they_should
    lease.rules.lease_start:lease_start
    - if first_ms:
    + if True:
    +     return LeaseStart(initial, now_ms, None, now_ms, is_now=True)
    + if first_ms:
the other parent of a merge is left out | everything_is_processed
    lease.rules.children:_unread_leases
    + return []
records that expired before the first one are not checked for | readers_resume_where_they_should
    lease.rules.lease_start:wanted_records
    + return WantedRecords()
finished leases are deleted before an audit has filled the holes | leases_are_deleted_in_time | rare
    lease.rules.audit:audit_needs_them
    + return False
the present retention period is trusted | readers_resume_where_they_should
    stream.reading.retention:has_lost
    + return may_have_lost(position, now_ms, retention_ms)
""")

HOLDING_BUGS = planted("""
a failed call is tried again during a pause | paused_shards_get_no_records | rare
    worker.lifecycle.shard.states:before_task
    - return _S.PAUSED if is_paused and state is _S.PROCESSING else state
    + return state
a pause stops nothing | paused_shards_are_not_fetched
    worker.lifecycle.shard.fetching:ShardFetching.pause
    + pass
a pause has no end | every_shard_is_read
    worker.lifecycle.shard.fetching:ShardFetching.resume
    + pass
a paused worker forgets the memory of its pages | memory_is_given_back
    worker.retrieval.ahead:FetchAhead.stop
    - for page in pages:
    + for page in ():
""")

RELAXED_BUGS = planted("""
an automatic checkpoint covers a failed batch | automatic_checkpoints_cover_processed_records
    worker.checkpointer:Checkpointer.take_back
    + pass
batches are not cut at the next automatic checkpoint | no_more_than_the_interval_is_repeated
    worker.lifecycle.shard.automatic_checkpoints:AutomaticCheckpoints.room
    + return None
processing goes on without a checkpoint that is due | no_more_than_the_interval_is_repeated
    worker.lifecycle.shard.automatic_checkpoints:AutomaticCheckpoints.write_if_due
    + was(self)
automatic checkpoints are not due by time | automatic_checkpoints_come_in_time
    worker.lifecycle.shard.automatic_checkpoints:AutomaticCheckpoints.due_in
    + return 0.0 if self._most is not None and self._records >= self._most else None
the time counts from the last call | automatic_checkpoints_come_in_time
    worker.lifecycle.shard.automatic_checkpoints:AutomaticCheckpoints.processed
    + was(self, batch, since)
    + self._since = None if self._since is None else since
nothing is checkpointed automatically at a shutdown | shutdowns_checkpoint_what_was_processed | rare
    worker.lifecycle.shard.processor_lifecycle:ProcessorLifecycle.checkpoint
    + pass
the end of a shard is not checkpointed automatically | every_shard_is_read
    worker.lifecycle.shard.automatic_checkpoints:AutomaticCheckpoints.write
    - if self.are_on:
    + if self.are_on and self._checkpointer._permitted.end is None:
children wait for their parents although they need not | children_begin_at_once
    worker.lifecycle.shard.consumer:ShardConsumer._block_on_parent
    - not options.parents_first or self._worker
    + self._worker
children get leases only when their parents end | children_get_leases_in_time
    lease.shards.shard_syncer:ShardSyncer._create_early_children
    + pass
""")

WAYS_BUGS = planted("""
a checkpoint passes an unfinished record | automatic_checkpoints_cover_processed_records
    worker.lifecycle.shard.concurrent_delivery:OpenRecords.finish
    - self._in_order and self._in_order[0].is_finished
    + self._in_order
all that wait for a record of their key begin at once | calls_never_overlap
    worker.lifecycle.shard.concurrent_delivery:OpenRecords.finish
    - behind = self._behind[key]
    + behind = self._behind.setdefault(key, deque())
    - self._startable.append(behind.popleft())
    + self._startable.extend(behind)
    + behind.clear()
records that wait for one of their key are forgotten at the end of a shard
    | readers_resume_where_they_should
    worker.lifecycle.shard.concurrent_delivery:OpenRecords.__bool__
    + return self._rest is not None or bool(self._startable)
a child begins before the tasks of its parent have ended | calls_never_overlap
    worker.processors.user_calls:UserCalls.begin
    + was(self, method, given, lambda error: None)
    + done(None)
a shard is left while calls for its records run | calls_never_overlap
    worker.lifecycle.shard.consumer:ShardConsumer._has_open_calls
    + return False
a failed record counts as finished | automatic_checkpoints_cover_processed_records
    worker.lifecycle.shard.concurrent_delivery:ConcurrentDeliverer._call_failed
    + self._finish(one, self._settings.clock())
a cancelled coroutine is checkpointed | automatic_checkpoints_cover_processed_records
    worker.processors.event_loop:EventLoop.begin
    - CancelledError() if future.cancelled()
    + None if future.cancelled()
a function's batches are not checkpointed | automatic_checkpoints_come_in_time | rare
    worker.processors.function_processors:RecordFunction.options
    + return options
a batch is checkpointed before its loop asks again
    | automatic_checkpoints_cover_processed_records
    worker.lifecycle.batch_loop:_Handover.offer
    - offer.is_processed.result()
    + True
a batch at which a loop is left counts as processed
    | automatic_checkpoints_cover_processed_records
    worker.lifecycle.batch_loop:ApplicationLoop._end
    - is_processed=False
    + is_processed=True
a loop is given the batches of lost leases | expired_leases_are_not_processed | rare
    worker.lifecycle.batch_loop:_Handover._serve
    - not self._offers[0].batch.checkpointer.is_held
    + False
what a coroutine for a record returns is not looked at
    | automatic_checkpoints_cover_processed_records
    worker.processors.user_calls:await_user
    + await method(*given)
""")

STORE_BUGS = planted("""
the token stays as it is where a lease is acquired again | old_tokens_never_write
    lease.table.requests:take
    - next_token(token, at_least, worker_id)
    + token or at_least
a worker that is given a lease keeps the token of who gave it | old_tokens_never_write
    lease.table.requests:take
    - next_token(token, at_least, worker_id)
    + token if token and lease.owner == worker_id else next_token(token, at_least, worker_id)
the tokens of a new row begin anew | newer_tokens_are_larger
    lease.table.fencing:token_at
    + return 1
the start that initialize returns is not used | readers_resume_where_they_should
    worker.lifecycle.shard.starting:move_to
    + pass
a start inside an aggregate is a user record too early | readers_resume_where_they_should
    worker.checkpointer:Checkpointer.begin_at
    + was(self, type(place)(place.sequence_number, max(0, place.sub_sequence_number - 1)))
""")

LED_BUGS = planted("""
two leaders assign at once | leaders_assign_one_at_a_time
    lease.assignment.coordinator_state:acquire_expects
    + return None if known is None else {}
    lease.assignment.coordinator_state:can_acquire
    + return True
    lease.table.requests:assign_vacant
    - _pass_on(lease, new_owner, _as_known(lease), add=("owner_switches",))
    + _pass_on(lease, new_owner, _owners(lease), add=())
a handoff that its owner does not hear of is given up by the requester, too
    | every_shard_is_read
    lease.held:HeldLease._is_asked_for
    + return False
    lease.rules.taker:_Snapshot._is_late
    + return False
    lease.rules.observations:vacant_leases
    - now - seen.owners_since > late
    + False
a worker takes leases beside a live leader | nobody_takes_beside_a_live_leader
    lease.assignment.assignment:Leadership.reach
    + return Reach.TAKE
leases are assigned to dead workers for ever | leases_find_owners_in_time
    lease.assignment.worker_stats:silent_workers
    + return {}
    lease.assignment.worker_stats:WorkerStats.is_alive
    + return self.is_valid
a lease moves again before its last move shows | leases_stay_where_they_have_moved
    lease.assignment.moves:resting
    + return frozenset(row.key for row in leases if row.checkpoint_owner is not None)
a lock is taken that has not expired | the_lock_is_respected
    lease.assignment.coordinator_state:SeenLock.is_expired
    + return self.lock.is_released or now - self.since > 1.0
a lease that is given back is taken for a twin's | only_a_twin_ends_a_worker | rare
    lease.table.write_conflict:resolve_conflict
    - row.fencing_token == known.fencing_token
    + False
whoever leads no more goes on to assign | only_the_leader_assigns
    lease.assignment.coordinator_state:HeldLock.leads
    + return True
    lease.assignment.coordination:Coordination.heartbeat
    + return was(self, held, now) or held
who reads only its own rows believes in a leader for ever | leases_find_owners_in_time
    lease.assignment.partial_scan:leader_lives
    + return True
    lease.assignment.coordinator_state:SeenLock.is_expired
    + return self.lock.is_released
""")
