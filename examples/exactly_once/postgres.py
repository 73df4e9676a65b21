"""Counts the records of each key in Postgres, each record once: ``postgres.py STREAM URL``."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial

import psycopg

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

TABLES = """
    SELECT pg_advisory_xact_lock(1);
    CREATE TABLE IF NOT EXISTS positions (
        shard text PRIMARY KEY,
        token bigint NOT NULL,
        sequence_number text,
        sub_sequence_number bigint
    );
    CREATE TABLE IF NOT EXISTS totals (key text PRIMARY KEY, records bigint NOT NULL);
"""
CLAIM = """
    INSERT INTO positions (shard, token) VALUES (%s, %s)
    ON CONFLICT (shard) DO UPDATE SET token = greatest(positions.token, excluded.token)
"""
CLAIMED = "SELECT token, sequence_number, sub_sequence_number FROM positions WHERE shard = %s"
MOVE = """
    UPDATE positions SET sequence_number = %s, sub_sequence_number = %s
    WHERE shard = %s AND token = %s
    AND sequence_number IS NOT DISTINCT FROM %s::text
    AND sub_sequence_number IS NOT DISTINCT FROM %s::bigint
"""
COUNT = """
    INSERT INTO totals (key, records) SELECT * FROM unnest(%s::text[], %s::bigint[])
    ON CONFLICT (key) DO UPDATE SET records = totals.records + excluded.records
"""
# A worker that stands still in a transaction holds its locks, for ten seconds at most.
SESSION = "-c idle_in_transaction_session_timeout=10s"


class ExactlyOnce(RecordProcessor):
    """Stores results and the shard's position in one transaction. Derive from it, with `store`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: psycopg.Connection | None = None

    def store(self, database: psycopg.Connection, records: list[UserRecord]) -> None:
        """Store the results of records, in a transaction that is begun already."""
        raise NotImplementedError

    def database(self) -> psycopg.Connection:
        """Return the shard's connection; a new one if the server has closed the last."""
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect(self.url, autocommit=True, options=SESSION)
        return self.connection

    def initialize(self, shard: ProcessorShard) -> ExtendedSequenceNumber | None:
        """Claim the shard: from now on, no worker with an older token can write."""
        self.shard, self.token = (
            f"{shard.stream_id or shard.stream} {shard.id}",
            shard.fencing_token,
        )
        self.database().execute(CLAIM, (self.shard, self.token))
        return self.position()

    def position(self) -> ExtendedSequenceNumber | None:
        """Return up to where records are stored. Raises LeaseLostError for an older token."""
        token, number, sub = self.database().execute(CLAIMED, (self.shard,)).fetchone()
        if token != self.token:
            raise LeaseLostError(f"{self.shard} was claimed with the newer token {token}.")
        return None if number is None else ExtendedSequenceNumber(number, sub)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        done = self.position()
        # A call that failed after its commit, or did not learn of it, comes again.
        records = [one for one in batch if done is None or one.position > done]
        if not records:
            return
        database = self.database()
        with database.transaction():
            self.store(database, records)
            # Last, because it locks the row: the next owner's claim waits for the commit.
            last = records[-1].position
            place = (last.sequence_number, last.sub_sequence_number, self.shard, self.token)
            known = (done.sequence_number, done.sub_sequence_number) if done else (None, None)
            if database.execute(MOVE, (*place, *known)).rowcount != 1:
                self.position()  # raises LeaseLostError if another worker has claimed the shard
                raise RuntimeError(f"A commit of {self.shard} came late; its records come again.")

    def lease_lost(self) -> None:
        self.close()

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class Totals(ExactlyOnce):
    """Counts the records of each key."""

    def store(self, database: psycopg.Connection, records: list[UserRecord]) -> None:
        keys = Counter(record.partition_key or "" for record in records)
        # In one order for all shards, so that no two wait for each other. (By executemany, which
        # works in a pipeline, Postgres would not count the transaction as idle.)
        names = sorted(keys)
        database.execute(COUNT, (names, [keys[name] for name in names]))


def main(stream: str, url: str) -> None:
    with psycopg.connect(url) as database:
        database.execute(TABLES)
    Application(
        f"{stream}-totals",
        stream,
        partial(Totals, url),
        initial_position="trim_horizon",
        # For whoever looks at the lag, and for the day on which the database is lost.
        options=WorkerOptions(checkpoint_seconds=60),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
