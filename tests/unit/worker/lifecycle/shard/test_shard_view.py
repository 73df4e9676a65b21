"""U3: the state of a shard as other threads read it, at each stage of its consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from sparkinesis.status import ShardState
from sparkinesis.worker.lifecycle.shard.batcher import ReadEnd
from sparkinesis.worker.lifecycle.shard.lag import NAMED_AFTER, UNHEARD_AFTER
from sparkinesis.worker.lifecycle.shard.shard_view import ShardView
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.on_error import Retry
from tests.unit.worker.delivering import SHARD, Shard, batch_of

NOW = 1000.0


class Viewed:
    """A view of a shard, whose fetching and batches a test makes up."""

    def __init__(self) -> None:
        self.shard = Shard(Retry(), "8")
        self.fetching = SimpleNamespace(is_paused=False, paused_since=None, heard_at=NOW)
        self.batcher = SimpleNamespace(
            waiting_since=None,
            end=None,
            dropped=3,
            last_page=SimpleNamespace(millis_behind_latest=1500),
        )
        self.view = ShardView(
            cast(Any, self.shard.held),
            cast(Any, self.shard.setting),
            cast(Any, self.fetching),
            cast(Any, self.batcher),
        )


def test_before_its_processor_is_initialized_a_shard_has_a_lag_already() -> None:
    one = Viewed()
    assert one.view.millis_behind(NOW) == 1500
    assert one.view.millis_behind(NOW + UNHEARD_AFTER + 2.0) == 33_500
    one.batcher.waiting_since = NOW - 7.0
    assert one.view.millis_behind(NOW) == 7000
    assert (one.view.processing_since, one.view.records, one.view.stopped_by) == (None, 0, None)
    assert one.view.standstill is None


def test_what_a_processor_holds_counts_before_what_waits() -> None:
    one = Viewed()
    one.view.deliverer = one.shard.deliverer
    one.batcher.waiting_since = NOW - 7.0
    one.shard.deliverer.add(batch_of(7), NOW - 9.0)
    assert one.view.millis_behind(NOW) == 9000
    one.shard.deliverer.deliver()
    assert one.view.millis_behind(NOW) == 7000
    assert one.view.records == 1


def test_no_lag_is_known_of_a_shard_that_is_paused_or_read_to_its_end() -> None:
    one = Viewed()
    one.fetching.is_paused = True
    assert one.view.millis_behind(NOW) is None
    one.fetching.is_paused = False
    one.batcher.end = ReadEnd()
    assert one.view.millis_behind(NOW + 2 * UNHEARD_AFTER) == 1500, "no page is waited for"
    one.view.read_to = ShutdownReason.REQUESTED
    assert one.view.millis_behind(NOW) == 1500, "the range of a replay has ended"
    one.view.read_to = ShutdownReason.SHARD_END
    assert one.view.millis_behind(NOW) is None


def test_a_status_names_the_cause_of_a_standstill_once_it_lasts() -> None:
    one = Viewed()
    one.view.deliverer = one.shard.deliverer
    one.shard.deliverer.add(batch_of(8))
    one.shard.deliverer.deliver()
    for seconds, because in (
        (NAMED_AFTER - 0.5, ""),
        (NAMED_AFTER, "process_records fails again and again on record 8:0"),
    ):
        if because:
            one.shard.setting.now += 9.0
            one.shard.deliverer.deliver()
        status = one.view.status(SHARD, ShardState.PROCESSING, NOW + seconds)
        assert (status.standing_for, status.standing_because) == (seconds, because)
    one.fetching.paused_since = NOW
    status = one.view.status(SHARD, ShardState.PAUSED, NOW + 4.0)
    assert (status.shard_id, status.state, status.paused_for) == (SHARD, ShardState.PAUSED, 4.0)
    assert (status.dropped, status.records) == (3, 0)
    assert status.checkpoint == "TRIM_HORIZON"
