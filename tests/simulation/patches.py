"""Functions that take a function and return a wrong one, for deliberate bugs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

from sparkinesis.lease.extended_sequence_number import LATEST, ExtendedSequenceNumber
from sparkinesis.lease.table.batch import Failed
from sparkinesis.lease.table.write_conflict import StillHeld
from sparkinesis.stream.position import AfterRecord, AtTimestamp
from sparkinesis.stream.routing import hash_key
from sparkinesis.worker.on_error import DeadLetter
from tests.simulation.processor import SimulatedFailureError


def always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *given, **named: value


def unfenced(build: Any) -> Any:
    return lambda lease, *more, **named: replace(build(lease, *more, **named), expected={})


def drop_first(after_start: Any) -> Any:
    def after(self: Any, *page: Any) -> Any:
        records = after_start(self, *page)
        return records[1:] if records else records

    return after


def begin_anew(fetch: Any) -> Any:
    """An iterator that has expired is replaced by one at the place of the very first."""

    def begin(self: Any, *limit: Any) -> Any:
        place = self._position, self._inclusive
        fetched = fetch(self, *limit)
        self._position, self._inclusive = place
        take_repeats(self)
        return fetched

    return begin


def take_repeats(cursor: Any) -> None:
    """A cursor of any kind does not look whether records lie before its position."""
    cursor._early_filter = SimpleNamespace(apply=lambda fetched: fetched)


def counted_too(processing_failed: Any) -> Any:
    """A call that raised counts as processed, too."""

    def count(self: Any, began: float) -> None:
        processing_failed(self, began)
        self.processed(1, lambda: 1, began)

    return count


def twice(tell: Any) -> Any:
    def again(self: Any, *told: Any) -> None:
        tell(self, *told)
        tell(self, *told)

    return again


def skip_failed(failed: Any) -> Any:
    def skip(self: Any, attempt: Any, error: BaseException) -> float:
        self._pass(attempt.batch)
        return 0.0

    return skip


def checkpoint_first(deliver_next: Any) -> Any:
    def first(self: Any) -> float:
        if self._queue and len(self._queue[0].batch):
            self.checkpointer.permit(self._queue[0].batch.last)
            self.checkpointer.checkpoint()
        return float(deliver_next(self))

    return first


def whole_records(resolve: Any) -> Any:
    def whole(self: Any, *at: Any) -> ExtendedSequenceNumber:
        return ExtendedSequenceNumber(resolve(self, *at).sequence_number)

    return whole


def swallow(take: Any) -> Any:
    def swallow(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return take(self, *given, **named)
        except Exception:  # noqa: BLE001
            return None

    return swallow


def early_end(take: Any) -> Any:
    """A page's last record, the shard's, is not waited for."""

    def early(self: Any) -> Any:
        batch = take(self)
        if self.at_end and batch is not None and len(batch):
            return batch.slice(0, len(batch) - 1)
        return batch

    return early


def behind_aggregates(start: Any) -> Any:
    def behind(*given: Any, **named: Any) -> Any:
        at = start(*given, **named)
        return AfterRecord(at.sequence_number) if isinstance(at, AfterRecord) else at

    return behind


def latest_again(start: Any) -> Any:
    def again(lease: Any, initial: Any, now_ms: int, **named: Any) -> Any:
        if lease.checkpoint.sequence_number == LATEST:
            return AtTimestamp(now_ms)
        return start(lease, initial, now_ms, **named)

    return again


def children_at_latest(plan: Any) -> Any:
    def at_latest(*given: Any, **named: Any) -> Any:
        found = plan(*given, **named)
        at = ExtendedSequenceNumber(LATEST)
        return replace(found, create=tuple(replace(one, checkpoint=at) for one in found.create))

    return at_latest


def too_far(skip_before: Any) -> Any:
    def too_far(self: Any, now_ms: int) -> int | None:
        bound = skip_before(self, now_ms)
        return None if bound is None else bound + 3_000

    return too_far


def deaf(resort: Any) -> Any:
    """Ignores the errors of a dead-letter target."""

    def deaf(policy: Any) -> Any:
        found = resort(policy)
        return DeadLetter(shrug(found.target)) if isinstance(found, DeadLetter) else found

    return deaf


def shrug(target: Any) -> Any:
    def shrug(failed: Any) -> None:
        with suppress(Exception):
            target(failed)

    return shrug


def believe(judge: Any) -> Any:
    """Takes every write under this worker's id for this worker's own."""

    def believe(known: Any, row: Any, *more: Any) -> Any:
        verdict = judge(known, row, *more)
        return StillHeld(row) if getattr(verdict, "to_duplicate_worker", False) else verdict

    return believe


def believe_listing(_: Any) -> Any:
    """Treats every shard that is not listed as gone, however old the listing."""
    return lambda self, shard_id, hash_range=None: self.children(shard_id)


def silent_reset(reset: Any) -> Any:
    def silent(lease: Any, *more: Any) -> Any:
        update = reset(lease, *more)
        changes = {name: value for name, value in update.set.items() if name != "leaseCounter"}
        return replace(update, set=changes, remove=())

    return silent


def forgetful(take: Any) -> Any:
    def forget(lease: Any, worker_id: str) -> Any:
        update = take(lease, worker_id)
        return replace(update, remove=(*update.remove, "note"))

    return forget


def renewed_if(*codes: str) -> Callable[[Any], Any]:
    """A statement that is answered with one of these errors counts as written."""

    def make(outcome_of: Any) -> Any:
        def believe(update: Any, response: Any, **more: Any) -> Any:
            if response.get("Error", {}).get("Code") in codes:
                return update.after
            return outcome_of(update, response, **more)

        return believe

    return make


def sure(outcome_of: Any) -> Any:
    """A statement that failed had no effect, whatever its error."""

    def sure(*given: Any, **named: Any) -> Any:
        outcome = outcome_of(*given, **named)
        return replace(outcome, is_in_doubt=False) if isinstance(outcome, Failed) else outcome

    return sure


def without_doubt(write: Any) -> Any:
    return lambda self, update, **_: write(self, update)


def deleted_unless_told(refused: Any) -> Any:
    """A refusal that does not tell the row is that of a row which is gone."""

    def refuse(self: Any, update: Any, item: Any, in_doubt: bool) -> Any:
        if item is None:
            raise self._changed(update, None)
        return refused(self, update, item, in_doubt)

    return refuse


def believe_conditions(probe: Any) -> Any:
    def believe(self: Any, leases: Any) -> None:
        self._is_proven = True

    return believe


def one_by_one(send: Any) -> Any:
    def one_by_one(self: Any, updates: Any) -> Any:
        return [send(self, [update])[0] for update in updates]

    return one_by_one


def last_page(list_shards: Any) -> Any:
    def last_page(self: Any, *given: Any, **named: Any) -> Any:
        call = self.call

        def forget(operation: str, make: Any, **more: Any) -> Any:
            answer = call(operation, make, **more)
            return {**answer, "Shards": []} if answer.get("NextToken") else answer

        with mock.patch.object(self, "call", forget):
            return list_shards(self, *given, **named)

    return last_page


def silent_end(end: Any) -> Any:
    """A reader is told nothing, as if it had never been initialized."""

    def silent(self: Any) -> Any:
        if not self.intake.at_end:
            self._last_calls = None
        return end(self)

    return silent


def filter_all(make_objects: Any) -> Any:
    """Filters each record by the hash of its partition key, aggregated or not."""

    def filter_all(records: Any, make: Any, shard_id: str, **named: Any) -> Any:
        hash_range = named["hash_range"]
        made, _ = make_objects(records, make, shard_id, **{**named, "hash_range": None})
        if hash_range is None:
            return made, 0
        first, last = hash_range
        kept = [
            user
            for user in made
            if user.partition_key is None or first <= hash_key(user.partition_key, None) <= last
        ]
        return kept, len(made) - len(kept)

    return filter_all


def keys_only(decoder: Any) -> Any:
    """A record without a partition key is no record."""

    class KeysOnly:
        def decode(self, body: bytes) -> Any:
            page = decoder.decode(body)
            if any(record.partition_key is None for record in page.records):
                raise msgspec.ValidationError("Object missing required field `PartitionKey`")
            return page

    return KeysOnly()


def untried(put_off: Any) -> Any:
    """Gives up the last record of a failed batch without trying it alone."""

    def put(self: Any, attempt: Any, pause: float) -> Any:
        if pause == 0.0 and len(attempt.batch) == 1:
            return self._give_up(attempt, SimulatedFailureError())
        return put_off(self, attempt, pause)

    return put


def keep_memory(stop: Any) -> Any:
    """Drops the pages of a lost lease without giving back their memory."""

    def keep(self: Any) -> None:
        with self._lock:
            self._pages.clear()
        stop(self)

    return keep


def no_floor(grant: Any) -> Any:
    """Grants an empty shard its minimum only if the budget has room."""

    def granted(self: Any, hold: Any) -> bool:
        if self._room(hold._account) < min(hold._want, self.floor):
            return False
        return bool(grant(self, hold))

    return granted


def grant_all(grant: Any) -> Any:
    """Grants each request in full, whatever the others hold."""

    def granted(self: Any, hold: Any) -> bool:
        hold.is_decided = True
        self._change(hold, hold._want)
        return True

    return granted
