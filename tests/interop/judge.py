"""Judges a scenario: records that were lost, out of order or repeated, and why. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Record: TypeAlias = tuple[str, int]
"""A partition key, and the number of its record: from 0 on, in the order of the puts."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records that were given together, in their order."""

    reader: str
    shard: str
    records: tuple[Record, ...]
    is_kept: bool
    """A checkpoint of this reader came behind it: nobody is to be given it again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    put: int
    read: int
    """Different records."""
    lost: int
    out_of_order: int
    """Records that were first given behind a later one of their key."""
    repeated: int
    explained: int
    """Repeated records that a reader had received before it was killed without a checkpoint."""

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.out_of_order and self.repeated == self.explained


def judge(
    put: Mapping[str, int], deliveries: Iterable[Delivery], killed: Collection[str]
) -> Verdict:
    """``put``: how many records each key has. ``deliveries``: by time, of all readers."""
    last: dict[str, int] = {}
    given: dict[Record, Delivery] = {}
    out_of_order = repeated = explained = 0
    for delivery in deliveries:
        for record in delivery.records:
            before = given.get(record)
            if before is None:
                key, number = record
                out_of_order += number < last.get(key, -1)
                last[key] = max(number, last.get(key, -1))
            else:
                repeated += 1
                explained += before.reader in killed and not before.is_kept
            given[record] = delivery
    expected = {(key, number) for key, count in put.items() for number in range(count)}
    lost = len(expected - given.keys())
    return Verdict(len(expected), len(given), lost, out_of_order, repeated, explained)


def deliveries_of(lines: Iterable[Mapping[str, object]]) -> list[Delivery]:
    """Turns the workers' lines, records or checkpoints with their time ``at``, into deliveries.

    A checkpoint covers everything that its reader received from the shard before it.
    """
    found: list[Delivery] = []
    open_: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: float(str(line["at"]))):
        reader, shard, records = str(line["reader"]), str(line["shard"]), line.get("records")
        if isinstance(records, Sequence):
            open_[reader, shard].append(len(found))
            whole = tuple((str(key), int(number)) for key, number in records)
            found.append(Delivery(reader, shard, whole, is_kept=False))
        elif not _NO_CHECKPOINT & line.keys():
            for at in open_.pop((reader, shard), ()):
                one = found[at]
                found[at] = Delivery(one.reader, one.shard, one.records, is_kept=True)
    return found


_NO_CHECKPOINT = {"from", "lost", "asked"}
"""In lines that tell something else of a shard."""


class UnequalReplayError(Exception):
    """Two tries of one batch had different rows."""


def deliveries_of_batches(tries: Iterable[tuple[int, str, Sequence[Record]]]) -> list[Delivery]:
    """A query's batches as its sink keeps them: one try of each number, in the order of numbers.

    ``tries``: number, reader, rows. Raises `UnequalReplayError`.
    """
    kept: dict[int, Delivery] = {}
    for number, reader, rows in tries:
        delivery = Delivery(reader, "", tuple(rows), is_kept=True)
        if number in kept and kept[number].records != delivery.records:
            raise UnequalReplayError(f"two tries of batch {number} had different rows")
        kept[number] = delivery
    return [kept[number] for number in sorted(kept)]
