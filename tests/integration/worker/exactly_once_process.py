"""Runs the example of results and positions in one transaction, until it is killed.

Usage: python -m THIS STORE PLACE ENDPOINT STREAM WORKER LOG

STORE: sqlite, of the file PLACE, or postgres, of the URL PLACE. The log gets a line for each claim
of a shard, with its token; for each write that the token refuses; and before the process stops
itself, as the file ``LOG.stop`` orders it: "before" a transaction, or in its "middle". "after"
orders a call to fail once its transaction is committed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from sparkinesis import LeaseLostError
from tests import pace
from tests.local_application import local_application

FAILOVER_TIME = pace.seconds(1.5)

_log = Path(sys.argv[-1])
_order = Path(f"{_log}.stop")


def note(*words: object) -> None:
    with _log.open("a", encoding="utf-8") as file:
        file.write(" ".join(map(str, words)) + "\n")


def stop_if(when: str) -> None:
    """Stand still, if that is ordered, until somebody continues this process."""
    if _order.exists() and _order.read_text() == when:
        _order.unlink()
        note("stops", when)
        # To this thread: by a signal to the process, this thread may go on for a moment, and stop
        # with the lock of SQLite.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def observed(totals: Any) -> Any:
    """The example's record processor, which writes its log and stops where it is told to."""

    class Observed(totals):  # type: ignore[misc]
        def initialize(self, shard: Any) -> Any:
            found = super().initialize(shard)
            note("claims", shard.id, shard.fencing_token)
            return found

        def process_records(self, batch: Any, checkpointer: Any) -> None:
            stop_if("before")
            try:
                super().process_records(batch, checkpointer)
            except LeaseLostError:
                note("refused", batch[0].shard_id, self.token)
                raise
            if _order.exists() and _order.read_text() == "after":
                _order.unlink()
                note("fails", "after")
                raise ConnectionError

        def store(self, transaction: Any, records: Any) -> None:
            super().store(transaction, records)
            stop_if("middle")

    return Observed


def main(store: str, place: str, endpoint: str, stream: str, worker: str) -> None:
    example: Any = import_module(f"examples.exactly_once.{store}")
    if (patience := os.environ.get("IDLE_TIMEOUT")) is not None:
        example.SESSION = f"-c idle_in_transaction_session_timeout={patience}"
    local_application(
        stream,
        endpoint,
        partial(observed(example.Totals), place),
        worker_id=worker,
        failover_time=FAILOVER_TIME,
        idle_time=0.25,
        parent_poll_interval=0.2,
        checkpoint_seconds=1.0,
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:-1])
