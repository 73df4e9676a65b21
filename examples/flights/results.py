"""The results of Spark, read from the files that the query writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights.board import Board, read_board
from examples.flights.events import Figures

COLUMNS = ["id", "kind", "carrier", "delay"]


@dataclass
class Results:
    """The batches in the query's folder; `refresh` reads new ones."""

    folder: Path
    batches: dict[int, pa.Table] = field(default_factory=dict)
    figures: dict[str, Figures] = field(default_factory=dict)
    board: Board = field(default_factory=Board)
    board_written: int = 0

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches.values())

    def refresh(self) -> bool:
        """Read new batches and the board; return True if there was a new batch."""
        path = self.folder / "board.json"
        written = path.stat().st_mtime_ns if path.exists() else 0
        if written != self.board_written:
            self.board, self.board_written = read_board(path), written
        paths = {int(p.name.split("=")[1]): p for p in self.folder.glob("events/batch_id=*")}
        new = paths.keys() - self.batches.keys()
        for batch_id in new:
            parts = sorted(paths[batch_id].glob("*.parquet"))
            # Each file alone: in a data set, the folder's name would become a column.
            tables = [pq.ParquetFile(part).read(columns=COLUMNS) for part in parts]
            self.batches[batch_id] = pa.concat_tables(tables)
        if new:
            self.figures = figures_of(pa.concat_tables(self.batches.values()))
        return bool(new)

    def lost_and_duplicated(self, expected: pa.Array) -> tuple[list[str], int]:
        """Return the missing event ids, and the number of rows that repeat an id."""
        ids = pa.concat_tables(self.batches.values())["id"]
        distinct = pc.unique(ids)
        lost = expected.filter(pc.invert(pc.is_in(expected, value_set=distinct)))
        return lost.to_pylist(), len(ids) - len(distinct)

    def board_has_begun(self) -> bool:
        """Return True once the board's query has stored its first offset.

        Spark does not start a query again that was killed while it stored that: it finds the
        unfinished file, and says that the checkpoint should be empty on batch 0.
        """
        return (self.folder / "checkpoints" / "board" / "offsets" / "0").exists()

    def unfinished_batch(self) -> bool:
        """Return True while the query writes a batch."""
        return any(self.folder.glob("events/.unfinished-*"))

    def uncommitted_batch(self) -> int | None:
        """The batch that is started and not finished by Spark's checkpoint."""
        checkpoint = self.folder / "checkpoints" / "flights"
        started, committed = (
            {int(path.name) for path in (checkpoint / name).glob("[0-9]*")}
            for name in ("offsets", "commits")
        )
        return max(started - committed, default=None)


def figures_of(events: pa.Table) -> dict[str, Figures]:
    """Compute the figures by carrier from the events of Spark."""
    departure = pc.equal(events["kind"], "departure")
    counted = (
        pa.table(
            {
                "carrier": events["carrier"],
                "departures": departure.cast(pa.int64()),
                "delay": pc.if_else(departure, events["delay"], 0),
            }
        )
        .group_by("carrier")
        .aggregate([("departures", "sum"), ("departures", "count"), ("delay", "sum")])
    )
    return {
        row["carrier"]: Figures(
            row["departures_sum"],
            row["departures_count"] - row["departures_sum"],
            row["delay_sum"],
        )
        for row in counted.to_pylist()
    }
