"""The live board of aircraft in the air: a stateful operator, and a file that holds its result.

The state of a carrier is its fleet: the last event of each aircraft. A silent aircraft is evicted
after a while, or the state would grow forever. The while is in event time: Spark's watermark stays
that far behind the latest event, drops older events, and wakes up a fleet when it passes the last
event of the aircraft that has been silent longest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

STATE = "fleet STRING, evicted LONG"
BOARD = "carrier STRING, fleet STRING, evicted LONG"
"""``fleet`` is a JSON object of tail number to the fields of `Heard`."""


class Heard(NamedTuple):
    """The last event of an aircraft."""

    at: int
    """Epoch milliseconds."""
    kind: str
    flight: int
    origin: str
    dest: str


def fleets(events: DataFrame, silence: str) -> DataFrame:
    """Return each changed carrier's fleet after a batch."""
    return (
        events.withWatermark("at", silence)
        .groupBy("carrier")
        .applyInPandasWithState(
            update_fleet, BOARD, STATE, "update", GroupStateTimeout.EventTimeTimeout
        )
    )


def update_fleet(
    key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Update a carrier's fleet by its new events, if any, and evict silent aircraft."""
    import pandas as pd  # noqa: PLC0415 - only Spark workers need it

    fleet, evicted = (json.loads(state.get[0]), state.get[1]) if state.exists else ({}, 0)
    for batch in () if state.hasTimedOut else batches:
        newest = batch.sort_values(["at", "id"]).drop_duplicates("tail", keep="last")
        newest["at"] = newest["at"].astype("datetime64[ms]").astype("int64")
        for row in newest[["tail", *Heard._fields]].to_dict("records"):
            heard = Heard(**{name: row[name] for name in Heard._fields})
            # Shards are read in parallel: an older event of an aircraft may come later.
            if row["tail"] not in fleet or heard.at >= fleet[row["tail"]][0]:
                fleet[row["tail"]] = heard
    watermark = state.getCurrentWatermarkMs()
    kept = {tail: heard for tail, heard in fleet.items() if heard[0] >= watermark}
    evicted += len(fleet) - len(kept)
    text = json.dumps(kept)
    state.update((text, evicted))
    if kept:
        state.setTimeoutTimestamp(min(heard[0] for heard in kept.values()))
    yield pd.DataFrame({"carrier": [key[0]], "fleet": [text], "evicted": [evicted]})


def board_writer(path: Path) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that keeps all carriers' fleets in one file.

    A fleet replaces the previous one, so a batch that is written again changes nothing.
    """

    def write(batch: DataFrame, _: int) -> None:
        stored = json.loads(path.read_text()) if path.exists() else {}
        for row in batch.collect():
            stored[row.carrier] = {"fleet": json.loads(row.fleet), "evicted": row.evicted}
        new = path.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.replace(path)  # atomically: others read the file meanwhile

    return write


@dataclass(frozen=True)
class Board:
    """The board as last written; an aircraft is (carrier, tail number)."""

    heard: dict[tuple[str, str], Heard] = field(default_factory=dict)
    evicted: int = 0

    @property
    def in_the_air(self) -> dict[tuple[str, str], Heard]:
        return {who: heard for who, heard in self.heard.items() if heard.kind == "departure"}


def read_board(path: Path) -> Board:
    """Read the board from the file of `board_writer`; without a file, an empty board."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    heard = {
        (carrier, tail): Heard(*last)
        for carrier, its in stored.items()
        for tail, last in its["fleet"].items()
    }
    return Board(heard, sum(its["evicted"] for its in stored.values()))
