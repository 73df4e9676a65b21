"""Probes a shard: finds out, with few and cheap calls, which records follow a position.

A plan asks a prober three things, in this order:

- `ShardProber.probe`: the first records after the position. On a slow shard these are all records,
  and the plan needs no other call;
- `ShardProber.sample` and `ShardProber.read_on`: more records, from which the plan estimates how
  many there are (`sparkinesis.source.planning.probing.survey`) and chooses the instant at which the
  batch ends, the same for all shards (`sparkinesis.source.planning.batch_instant`);
- `ShardProber.find_end`: where the batch ends in this shard
  (`sparkinesis.source.planning.probing.end_in_shard`).
"""

from __future__ import annotations

import math

from sparkinesis.source.planning.batch_end import Records
from sparkinesis.source.planning.probing.end_in_shard import EndSearch, Resumption
from sparkinesis.source.planning.probing.records_in_hand import UNLIMITED, Scale
from sparkinesis.source.planning.probing.shard_calls import Samples, ShardFront
from sparkinesis.source.planning.probing.survey import SAMPLE_LIMITS, Survey, Window, add_window
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL
from sparkinesis.stream.position import Position
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.retention import RetentionCheck

FIRST_LIMIT = 1_000
"""The limit of the first call, before the prober knows if the shard is busy."""

COUNTED_BYTES = 1_000_000
"""The most bytes that are read on: a sample reads about as much, and costs a call more."""

_NOTHING = Survey()
"""The survey of a shard at whose tip no record is in hand."""


class ShardProber:
    """Probes one shard repeatedly; used by one thread at a time.

    The front is kept from plan to plan. Samples, the survey and the ends belong to one plan.
    """

    def __init__(
        self,
        client: StreamClient,
        shard_id: str,
        budget: ShardBudget,
    ) -> None:
        self.front = ShardFront(client, shard_id, budget)
        self._limit = FIRST_LIMIT
        self._samples = Samples(self.front)
        self._ends: dict[tuple[int, int | None], Resumption] = {}
        self.survey = _NOTHING
        """What is known of the records after the position."""

    def probe(
        self,
        position: Position,
        check: RetentionCheck,
        scale: Scale = UNLIMITED,
        limit: int | None = None,
        until_ms: float = math.inf,
    ) -> None:
        """Fetch the first records after ``position``, ``limit`` at most.

        until_ms: the instant (epoch ms) behind which records do not matter. Raises `DataLossError`
        if records after the position were trimmed.
        """
        self._forget_samples()
        self.front.probe(position, check, scale, limit or self._limit, until_ms)
        self._update()

    def send_ahead(self, limit: int | None = None) -> bool:
        """Send the first request of `probe`, if `ShardFront.may_send_ahead`; False if it is not."""
        return self.front.send_ahead(limit or self._limit)

    def meet_end(self) -> None:
        """Ask once more at the tip of a closed shard: its end may come after its last records."""
        if self.front.at_tip and not self.front.at_end:
            self.front.fetch_on(MAX_RECORDS_PER_CALL)
            self._update()

    def read_on(self, weight: float) -> None:
        """Fetch about as many of the next records as weigh ``weight``, up to a page."""
        front = self.front
        if front.cursor is None or front.at_tip:
            return
        mean = front.hand.weights[-1] / len(front.hand) if front.hand else 0.0
        wanted = int(1.05 * weight / mean) + 1 if mean else MAX_RECORDS_PER_CALL
        front.fetch_on(max(wanted, SAMPLE_LIMITS[0]))
        self._update()

    def sample(self, instant: int, weight: float) -> None:
        """Fetch some records that arrived at ``instant`` (epoch ms) or later.

        weight: their approximate weight. The sample may begin earlier: see
        `survey.sample_place`, which keeps it out of the service's future, too.
        """
        self._samples.take(instant, weight, self.survey.windows)
        self._update()

    def find_end(self, instant: int, count: int | None = None) -> Resumption:
        """Find where a batch ends that has all records that arrived by ``instant`` (epoch ms).

        Calls Kinesis, unless that is known. The search may find the shard's end
        (`ShardFront.is_ended`): its children then decide if the instant stays.

        count: the number of records in hand that the batch has, if the instant does not decide it.
        """
        if (instant, count) not in self._ends:
            known = self._known_of_front()
            found = EndSearch(self.front, self._samples, self.survey).find(instant, count)
            if self._known_of_front() != known:
                self._update()
            self._ends[instant, count] = found
        return self._ends[instant, count]

    def _known_of_front(self) -> tuple[int, bool]:
        """Return what a search may add to the survey: records, and that no others follow."""
        return len(self.front.hand), self.front.at_tip

    def keep(self, chosen: Resumption, start: Position, end: Position) -> None:
        """Prepare for the next plan, which resumes at ``end``, or at ``start`` without a batch.

        Records that were fetched behind the batch's end stay in hand.

        chosen: the end of the batch in this shard, as it was found.
        """
        self._forget_samples()
        self._limit = chosen.limit
        if isinstance(chosen.end.finding, Records):
            self.front.move_to(end, chosen.cursor, chosen.rest)
        else:
            self.front.stand_at(start, end)
        self.front.drop_surplus()

    def _forget_samples(self) -> None:
        # A search that reads on from the only sample takes it away, and leaves its windows.
        if self._samples.taken or self._samples.windows or self._samples.is_bursty:
            self._samples = Samples(self.front)
        self._ends = {}

    def _update(self) -> None:
        """Make the survey of what is known now."""
        self._ends = {}
        front, hand, samples = self.front, self.front.hand, self._samples
        if front.at_tip and not hand:
            self.survey = _NOTHING
            self._limit = MAX_RECORDS_PER_CALL  # no page of this shard is large now
            return
        if hand:
            # Reading on may have passed samples.
            samples.windows = [one for one in samples.windows if one.start > hand.arrivals[-1]]
        in_hand_until = math.inf
        if not front.at_tip:
            in_hand_until = hand.arrivals[-1] - 1 if hand else -math.inf
        windows: list[Window] = []
        total = hand.weights[-1] if hand else 0.0
        first = None if front.at_tip or samples.is_bursty or not total else hand.window()
        if first is not None:
            windows = add_window(samples.windows, first)
        cheap = 0.0
        if hand:
            records = min(FIRST_LIMIT, COUNTED_BYTES * len(hand) / max(hand.size, 1))
            cheap = total / len(hand) * records
        self.survey = Survey(
            list(hand.arrivals),  # copies, as the lists grow
            list(hand.weights),
            in_hand_until,
            windows,
            cheap,
            len(samples.taken),
            rows_per_weight=hand.rows / total if total else 0.0,
        )
