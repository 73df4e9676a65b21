"""Counts the records of each key in SQLite, each record once: ``sqlite.py STREAM FILE``."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from functools import partial

from sparkinesis import (
    Application,
    Checkpointer,
    ExtendedSequenceNumber,
    LeaseLostError,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    UserRecord,
    WorkerOptions,
)

POSITIONS = """
    CREATE TABLE IF NOT EXISTS positions (
        shard TEXT PRIMARY KEY,
        token INTEGER NOT NULL,
        sequence_number TEXT,
        sub_sequence_number INTEGER
    )
"""
CLAIM = """
    INSERT INTO positions (shard, token) VALUES (?, ?)
    ON CONFLICT (shard) DO UPDATE SET token = max(token, excluded.token)
"""
CLAIMED = "SELECT token, sequence_number, sub_sequence_number FROM positions WHERE shard = ?"
MOVE = """
    UPDATE positions SET sequence_number = ?, sub_sequence_number = ?
    WHERE shard = ? AND token = ?
"""


class ExactlyOnce(RecordProcessor):
    """Stores results and the shard's position in one transaction. Derive from it, with `store`."""

    def __init__(self, file: str) -> None:
        self.database = sqlite3.connect(file, timeout=30, check_same_thread=False)

    def store(self, transaction: sqlite3.Connection, records: list[UserRecord]) -> None:
        """Store the results of records."""
        raise NotImplementedError

    def initialize(self, shard: ProcessorShard) -> ExtendedSequenceNumber | None:
        """Claim the shard: from now on, no worker with an older token can write."""
        self.shard, self.token = (
            f"{shard.stream_id or shard.stream} {shard.id}",
            shard.fencing_token,
        )
        with self.database as transaction:
            transaction.execute(CLAIM, (self.shard, self.token))
            return self.position(transaction)

    def position(self, transaction: sqlite3.Connection) -> ExtendedSequenceNumber | None:
        """Return up to where records are stored. Raises LeaseLostError for an older token."""
        token, number, sub = transaction.execute(CLAIMED, (self.shard,)).fetchone()
        if token != self.token:
            raise LeaseLostError(f"{self.shard} was claimed with the newer token {token}.")
        return None if number is None else ExtendedSequenceNumber(number, sub)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        with self.database as transaction:
            done = self.position(transaction)
            # A call that failed after its commit, or did not learn of it, comes again.
            records = [one for one in batch if done is None or one.position > done]
            if not records:
                return
            self.store(transaction, records)
            last = records[-1].position
            place = (last.sequence_number, last.sub_sequence_number, self.shard, self.token)
            if transaction.execute(MOVE, place).rowcount != 1:
                raise LeaseLostError(f"{self.shard} was claimed with a newer token.")

    def lease_lost(self) -> None:
        self.database.close()

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self.database.close()


TOTALS = "CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, records INTEGER NOT NULL)"
COUNT = """
    INSERT INTO totals (key, records) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET records = records + excluded.records
"""


class Totals(ExactlyOnce):
    """Counts the records of each key."""

    def store(self, transaction: sqlite3.Connection, records: list[UserRecord]) -> None:
        keys = Counter(record.partition_key or "" for record in records)
        transaction.executemany(COUNT, keys.items())


def main(stream: str, file: str) -> None:
    with sqlite3.connect(file, timeout=30) as database:
        database.execute(POSITIONS)
        database.execute(TOTALS)
    Application(
        f"{stream}-totals",
        stream,
        partial(Totals, file),
        initial_position="trim_horizon",
        # For whoever looks at the lag, and for the day on which the file is lost.
        options=WorkerOptions(checkpoint_seconds=60),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
