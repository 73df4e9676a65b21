"""One worker in its process: ``... tests.soak.worker ENDPOINT FOLDER WORKER_ID RETRIEVAL``."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any, cast

from sparkinesis import Application, WorkerOptions
from tests.soak.processor import Processor
from tests.soak.setting import APPLICATION, FAILOVER_TIME, REGION, STREAM


def application(
    endpoint: str, folder: str, worker_id: str | None = None, retrieval: str = "polling"
) -> Application:
    """The application of all workers, in processes of their own and on Spark."""
    return Application(
        APPLICATION,
        STREAM,
        functools.partial(Processor, folder),
        region=REGION,
        endpoint=endpoint,
        initial_position="trim_horizon",
        worker_id=worker_id,
        options=WorkerOptions(
            failover_time=FAILOVER_TIME,
            handoff_timeout=FAILOVER_TIME,
            retrieval=cast(Any, retrieval),
            parent_poll_interval=2.0,
            audit_interval=15.0,
            cleanup_interval=15.0,
        ),
    )


def main(arguments: list[str]) -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(message)s"
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    application(*arguments).run()


if __name__ == "__main__":
    main(sys.argv[1:])
