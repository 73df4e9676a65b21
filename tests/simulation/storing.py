"""Record processors that write to a store of their own, and their histories.

A transaction takes time, in which its process may be paused or killed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.batch_loop import LoopBatch
from sparkinesis.worker.processors.processor import ProcessorShard
from tests.simulation import history as h
from tests.simulation.histories import Draw, histories, in_order
from tests.simulation.own_store import Access
from tests.simulation.processor import SimulatedProcessor
from tests.simulation.rough import plain_history

_SLOW, _SLOWEST = 0.2, 20.0
"""The probability of a slow transaction until faults end, and its seconds at most."""


class StoringProcessor(SimulatedProcessor):
    """Stores results and positions in one transaction, and may checkpoint after that."""

    def initialize(self, shard: ProcessorShard) -> ExtendedSequenceNumber | None:
        self._token = shard.fencing_token
        self._wait()
        start = self._journal.store.claim(self._access(shard.id, "is refused a claim"))
        if start is not None:
            self._journal.claim(shard.id, start)
            shard = replace(shard, checkpoint=start)
        super().initialize(shard)
        return start

    def _process_all(
        self, records: list[UserRecord], checkpointer: Checkpointer | LoopBatch | None
    ) -> Iterator[float]:
        yield from super()._process_all(records, checkpointer)
        yield self._seconds()
        self._journal.store.write(self._access(self._shard, "is refused a result"), records)
        if self._scheduler.rng.random() < 0.5:
            self._checkpoint(checkpointer, records)

    def _access(
        self, shard: str, what: Literal["is refused a claim", "is refused a result"]
    ) -> Access:
        current = self._scheduler.current
        process = "-" if current is None else current.process.name
        return Access(self._scheduler.now, shard, what, self._token, self._reader, process)

    def _wait(self) -> None:
        self._scheduler.sleep(self._seconds())

    def _seconds(self) -> float:
        chance = self._scheduler.rng.random
        is_slow = self._are_there_faults() and chance() < _SLOW
        return chance() * (_SLOWEST if is_slow else 0.01)


@st.composite
def storing_histories(draw: Draw) -> h.History:
    """The others, without what moves an application or gives records up."""
    base: h.History = draw(histories())
    return storing(base)


def rough_storing(number: int) -> h.History:
    """Rough ones with paused and killed workers, and hands that write to the lease table."""
    history, rng = plain_history(number), random.Random(-1 - number)
    kinds: tuple[Literal["take", "evict", "delete"], ...] = ("take", "evict", "delete")
    more: list[tuple[float, h.Event]] = [
        (rng.uniform(10.0, 110.0), h.Foreign(kind, rng.random())) for kind in kinds
    ]
    more += [(rng.uniform(20.0, 60.0), h.Start(2)), (rng.uniform(60.0, 100.0), h.Shutdown(0))]
    packed = [
        (
            at,
            h.Put(event.key, event.count, rng.choice((0, 4)))
            if isinstance(event, h.Put)
            else event,
        )
        for at, event in history.events
    ]
    events = in_order([*packed, *more], history.duration)
    return storing(replace(history, events=events))


def storing(history: h.History) -> h.History:
    """The same history of an application with a store of its own.

    It has no resets, which would move the lease and not the store, and retries what fails.
    """
    events = tuple(each for each in history.events if not isinstance(each[1], h.Reset))
    behaviour = replace(
        history.behaviour,
        checkpoint=0.0,
        odd_checkpoint=0.0,
        prepare=0.0,
        reset=0.0,
        poison=None,
    )
    return replace(history, events=events, behaviour=behaviour, on_error="retry", has_store=True)
