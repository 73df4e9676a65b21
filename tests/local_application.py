"""An application on a local Kinesis and DynamoDB."""

from __future__ import annotations

from typing import Any

from sparkinesis.application import Application
from sparkinesis.worker.options import WorkerOptions


def local_application(
    stream: str,
    endpoint: str,
    processor: Any,
    *,
    worker_id: str | None = None,
    initial_position: Any = "trim_horizon",
    **options: Any,
) -> Application:
    """It has the stream's name, and begins with the oldest record."""
    return Application(
        stream,
        stream,
        processor,
        region="us-east-1",
        endpoint=endpoint,
        initial_position=initial_position,
        worker_id=worker_id,
        options=WorkerOptions(**options),
    )
