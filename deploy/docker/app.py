"""An application to begin with: counts the records of a stream. `sparkinesis run app` runs it."""

from __future__ import annotations

import logging
import os

from sparkinesis import Application, RecordBatch, WorkerOptions


def count(batch: RecordBatch) -> None:
    """Replace this by what is to be done with the records."""
    logging.info("%d records", len(batch))


app = Application(
    os.environ["APPLICATION"],
    os.environ["STREAM"],
    count,
    region=os.environ["AWS_REGION"],
    endpoint=os.environ.get("ENDPOINT"),
    initial_position="trim_horizon",
    options=WorkerOptions(shutdown_timeout=30.0),
)
