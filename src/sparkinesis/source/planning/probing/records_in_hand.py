"""The first records of a shard after a position, and their weights in a batch. Pure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.source.options.checked_options import NO_LIMIT, Allowance
from sparkinesis.source.planning.probing.survey import Window, density_window
from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.page import Record

COUNTED_RECORDS = 20
"""The most aggregated records of a page that are opened if nothing limits a batch."""

KEPT_BYTES = 64 * 1024
"""The most bytes of data of a shard's records in hand that are kept with their data."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How records count towards the limit of a batch, where 1.0 is all of it."""

    allowance: Allowance
    deaggregate: bool = True
    """Count user records as rows."""

    def rows(self, records: Sequence[Record]) -> Sequence[int]:
        """Return the number of rows of each record; about the mean of all without a limit."""
        if not self.deaggregate or not aggregates_of(records):
            return [1] * len(records)
        # With the protobuf runtime, which plain records do not need.
        from sparkinesis.stream.kpl.envelope import count_user_records  # noqa: PLC0415

        if self.allowance.is_limited:
            return count_user_records(records)
        # The rows are only for the mean size of a row.
        some = count_user_records(records[:COUNTED_RECORDS])
        return [round(sum(some) / len(some))] * len(records)

    def weigh(
        self, records: Sequence[Record], rows: Sequence[int] | None = None
    ) -> Sequence[float]:
        """Return the weight of each record; ``rows``: the rows of each, if they are known."""
        if not self.allowance.is_limited:
            return [0.0] * len(records)
        return [
            max(count / self.allowance.rows, len(record.data) / self.allowance.bytes)
            for count, record in zip(rows or self.rows(records), records, strict=True)
        ]


UNLIMITED = Scale(NO_LIMIT)


class RecordsInHand:
    """The first records of a shard after a position; their data is kept where it is small."""

    def __init__(self) -> None:
        self.numbers: list[str] = []
        self.times: list[int | None] = []
        """The arrival times in epoch ms; None if the service returns none."""
        self.arrivals: list[int] = []
        """The latest arrival time up to each record; 0 without any."""
        self.weights: list[float] = []
        """The weight up to each record."""
        self.rows = 0
        """The number of rows, which is approximate if nothing limits the batch."""
        self.size = 0
        """The bytes of data."""
        self.records: list[Record] | None = []
        """The records themselves; None once there are more than `KEPT_BYTES`."""

    def __len__(self) -> int:
        return len(self.numbers)

    def extend(self, records: Sequence[Record], scale: Scale) -> None:
        """Add the records that follow."""
        rows = scale.rows(records)
        times = [record.arrived_ms for record in records]
        last, total = (self.arrivals[-1], self.weights[-1]) if self.numbers else (0, 0.0)
        latest = itertools.accumulate((time or 0 for time in times), max, initial=last)
        sums = itertools.accumulate(scale.weigh(records, rows), initial=total)
        self.rows += sum(rows)
        self.numbers += [record.sequence_number for record in records]
        self.times += times
        self.arrivals += itertools.islice(latest, 1, None)
        self.weights += itertools.islice(sums, 1, None)
        self.size += sum(len(record.data) for record in records)
        is_small = self.records is not None and self.size <= KEPT_BYTES
        self.records = [*(self.records or ()), *records] if is_small else None

    @property
    def first_arrival(self) -> int | None:
        """The arrival time (epoch ms) of the first record."""
        return self.arrivals[0] if self.arrivals else None

    @property
    def last_arrival(self) -> int | None:
        """The latest arrival time (epoch ms) of the records."""
        return self.arrivals[-1] if self.arrivals else None

    def count(self, instant: float) -> int:
        """Return the number of records that arrived by ``instant``."""
        return bisect.bisect_right(self.arrivals, instant)

    def after(self, count: int) -> RecordsInHand:
        """Return the records after the first ``count``."""
        rest = RecordsInHand()
        rest.numbers, rest.times = self.numbers[count:], self.times[count:]
        latest = itertools.accumulate((time or 0 for time in rest.times), max)
        rest.arrivals = list(latest)
        done = self.weights[count - 1] if count else 0.0
        rest.weights = [weight - done for weight in self.weights[count:]]
        share = len(rest) / len(self) if self.numbers else 0.0
        rest.size, rest.rows = round(self.size * share), round(self.rows * share)
        if self.records is not None:
            rest.records = self.records[count:]
        elif rest.numbers:
            rest.records = None
        return rest

    def window(self) -> Window | None:
        """Return these records as a window; None if they are too few for a density."""
        if not self.numbers:
            return None
        weights = [new - old for old, new in itertools.pairwise([0.0, *self.weights])]
        times = [time or 0 for time in self.times]
        return density_window(min(times), times, weights)
