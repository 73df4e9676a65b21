"""A worker to begin with: counts the records of a stream, and tells its health on port 9400."""

from __future__ import annotations

import logging
import os

from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions


class Count(RecordProcessor):
    """Replace this by what is to be done with each record."""

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        logging.info("%d records", len(batch.records))
        checkpointer.checkpoint()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    Application(
        os.environ["APPLICATION"],
        os.environ["STREAM"],
        Count,
        region=os.environ["AWS_REGION"],
        endpoint=os.environ.get("ENDPOINT"),
        initial_position="trim_horizon",
        # Whoever reaches the container's network may ask: the kubelet and Prometheus have to.
        options=WorkerOptions(http="0.0.0.0:9400", shutdown_timeout=30.0),
    ).run()


if __name__ == "__main__":
    main()
