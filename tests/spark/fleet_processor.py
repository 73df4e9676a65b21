"""A processor in a module of its own, which a driver ships to the executors as an artifact."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

from sparkinesis import ProcessorShard, RecordBatch, RecordProcessor
from sparkinesis.worker.checkpointer import Checkpointer


class Imported(RecordProcessor):
    """Writes down who it works for, and where its module is from."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialize(self, shard: ProcessorShard) -> None:
        line = {
            "at": time.monotonic(),
            "event": "initialize",
            "shard": shard.id,
            "worker": shard.worker_id,
            "module": __file__,
            "executor": str(Path.cwd()),
        }
        Path(self._folder, f"events-{uuid.uuid4().hex}.jsonl").write_text(json.dumps(line) + "\n")

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
