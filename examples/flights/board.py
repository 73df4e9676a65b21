"""The live board: which aircraft are in the air now. A stateful operator, and where it is shown.

The state of a carrier is its fleet: of each aircraft what was heard of it last. An aircraft that
was not heard of for a while is evicted, or the state would grow for ever. "A while" is event time:
Spark's watermark stays that much behind the latest event, drops what is older, and wakes up a fleet
when it passes the aircraft that has been silent longest.
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
"""``fleet`` is a JSON object: the tail number, and a list of what `Heard` says."""


class Heard(NamedTuple):
    """What was heard of an aircraft last."""

    at: int
    """Epoch milliseconds."""
    kind: str
    flight: int
    origin: str
    dest: str


def fleets(events: DataFrame, silence: str) -> DataFrame:
    """Each carrier's fleet as it is after a batch, for the carriers in which something changed."""
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
    """Take up a carrier's new events, if any, and evict the aircraft that fell silent."""
    import pandas as pd  # noqa: PLC0415 - only where Spark runs it

    fleet, evicted = (json.loads(state.get[0]), state.get[1]) if state.exists else ({}, 0)
    for batch in () if state.hasTimedOut else batches:
        newest = batch.sort_values(["at", "id"]).drop_duplicates("tail", keep="last")
        newest["at"] = newest["at"].astype("datetime64[ms]").astype("int64")
        for row in newest[["tail", *Heard._fields]].to_dict("records"):
            heard = Heard(**{name: row[name] for name in Heard._fields})
            # Shards are read side by side: older news of an aircraft may come in later.
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
    """For ``foreachBatch``: keeps all carriers' fleets in one file.

    A fleet replaces the one before it, so a batch that is written again changes nothing.
    """

    def write(batch: DataFrame, _: int) -> None:
        stored = json.loads(path.read_text()) if path.exists() else {}
        for row in batch.collect():
            stored[row.carrier] = {"fleet": json.loads(row.fleet), "evicted": row.evicted}
        new = path.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.replace(path)  # at once and whole: others read it meanwhile

    return write


@dataclass(frozen=True)
class Board:
    """The board as it was written last; aircraft are (carrier, tail number)."""

    heard: dict[tuple[str, str], Heard] = field(default_factory=dict)
    evicted: int = 0

    @property
    def in_the_air(self) -> dict[tuple[str, str], Heard]:
        return {who: heard for who, heard in self.heard.items() if heard.kind == "departure"}


def read_board(path: Path) -> Board:
    """The board in a file that `board_writer` keeps; an empty one before it has written."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    heard = {
        (carrier, tail): Heard(*last)
        for carrier, its in stored.items()
        for tail, last in its["fleet"].items()
    }
    return Board(heard, sum(its["evicted"] for its in stored.values()))
