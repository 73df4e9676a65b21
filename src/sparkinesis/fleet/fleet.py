"""`Fleet`: the handle on an application's workers on Spark executors."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparkinesis.errors import FleetError, OptionError
from sparkinesis.fleet.fleet_options import FleetOptions
from sparkinesis.fleet.spark_launcher import SparkLauncher
from sparkinesis.fleet.terminal_view import watch
from sparkinesis.metrics.metrics import CLOSE_WITHIN
from sparkinesis.public import public
from sparkinesis.status import FleetState, FleetStatus
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from sparkinesis.worker.lifecycle.signals import python_interrupt_handler
from sparkinesis.worker.on_error import DeadLetter, last_resort
from sparkinesis.worker.supervision.supervised import Supervised
from sparkinesis.worker.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@public
class Fleet:
    """The workers of one application on Spark executors, each in a Spark task of its own.

    `Application.run` makes it, and ``QueueApplication.run`` does so, too. All methods are
    safe to call from any thread; a thread of the fleet makes the decisions. As a context manager,
    the fleet shuts down at the end of the block, and raises `FleetError` if it has failed. It also
    shuts down when the driver's program ends.
    """

    def __init__(
        self,
        supervised: Supervised[Any],
        spark: SparkSession,
        workers: int,
        options: FleetOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `OptionError`, `ProcessorError` and `FleetError` before any job is submitted."""
        _check_workers(workers)
        if supervised.worker_id is not None:
            raise OptionError(
                "worker_id is set, but each worker of a fleet needs its own: leave worker_id out."
            )
        self._supervised = supervised
        self._options = options
        launcher = SparkLauncher(supervised, spark, options)
        self._supervisor = Supervisor(
            supervised,
            launcher,
            workers,
            launcher.rules,
            title=f"Fleet of {supervised.name}",
            clock=clock,
            notes=[] if launcher.is_local else _local_dead_letters(supervised),
        )
        self._thread = threading.Thread(
            target=self._lead, name=f"{launcher.group}-fleet", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._supervisor.close()
            raise
        atexit.register(self._at_exit)

    def _lead(self) -> None:
        try:
            self._supervisor.run()
        except BaseException:  # noqa: BLE001 - the status has it, and no thread awaits this one
            _log.exception("Fleet of %s: failed by an unexpected error", self._supervised.name)
        atexit.unregister(self._at_exit)

    @property
    def application(self) -> Any:
        """The application that the workers run: an `Application`, or one of a queue."""
        return self._supervised.application

    def status(self) -> FleetStatus:
        """Return the fleet's status, which is at most a heartbeat interval old."""
        return self._supervisor.status

    @property
    def http_url(self) -> str | None:
        """The URL at which the driver serves the health and the metrics of all workers.

        None without the option ``http`` of the application's `WorkerOptions`, and once the fleet
        has ended.
        """
        return self._supervisor.served.url

    def scale(self, workers: int) -> None:
        """Change the number of workers; return at once.

        Surplus workers shut down gracefully. Raises `OptionError` for less than one worker, and
        `FleetError` if the fleet is shutting down or has ended.
        """
        _check_workers(workers)
        state = self.status().state
        if state is not FleetState.RUNNING:
            raise FleetError(f"The fleet is {state.value} and cannot be scaled. Start another one.")
        self._supervisor.post(f"scale to {workers}", lambda state, _: state.scaled(workers))

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Start a graceful shutdown and return at once. See `shutdown`."""
        within = self._seconds(timeout)
        self._supervisor.post(
            f"shut down within {within} s", lambda state, _: state.shut_down(within)
        )

    def _seconds(self, timeout: float | None) -> float:
        return self._supervised.shutdown_within if timeout is None else timeout

    def shutdown(self, timeout: float | None = None) -> bool:
        """Shut down gracefully and wait for the end.

        Every worker finishes its current batches, lets its processors checkpoint, releases its
        leases, and ends its Spark task. Workers that have not ended ``lost_after`` seconds after
        the timeout are cancelled.

        timeout: seconds that the workers have; None: the application's ``shutdown_timeout``.

        Return True if all workers ended gracefully; False also if the fleet has failed.
        """
        self.request_shutdown(timeout)
        # All jobs are cancelled by then.
        most = self._seconds(timeout) + self._supervised.closes_within
        self._wait(most + 2 * self._options.lost_after)
        return self.status().state is FleetState.ENDED and self._supervisor.was_graceful

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the fleet's end; return True if it has ended.

        A fleet ends by `shutdown`, or when a record processor requests it. Raises `FleetError` if
        the fleet has failed. Ctrl-C raises KeyboardInterrupt; the fleet keeps running.
        """
        ended = self._wait(timeout)
        self._raise_failure()
        return ended

    def _raise_failure(self) -> None:
        status = self.status()
        if status.state is FleetState.FAILED:
            raise FleetError(f"The fleet of {self._supervised.name!r} has failed: {status.error}")

    def watch(self) -> None:
        """Show the fleet on the terminal, updated in place, until the fleet ends.

        Ctrl-C ends only the view.
        """
        watch(self.status, wait=self._wait)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        if error is None:
            self._raise_failure()

    def _wait(self, timeout: float | None) -> bool:
        # PySpark's handler of Ctrl-C would cancel all jobs, and so kill the workers.
        with python_interrupt_handler(only_for_spark=True):
            return self._supervisor.wait_until(lambda: self.status().state.is_over, timeout)

    def _at_exit(self) -> None:
        if not self.status().state.is_over:
            _log.info("The program is ending: shutting down the fleet")
            self.shutdown()
        self._thread.join(CLOSE_WITHIN)  # it publishes the last metrics


def _check_workers(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise OptionError(f"workers is {workers!r}; it takes a whole number of at least 1.")


def _local_dead_letters(supervised: Supervised[Any]) -> list[str]:
    """Return a warning of each directory for dead letters that each executor has for itself."""
    resorts = map(last_resort, supervised.policies())
    targets = [resort.target for resort in resorts if isinstance(resort, DeadLetter)]
    paths = [
        str(target.path)
        for target in targets
        if isinstance(target, DeadLetterDirectory) and target.is_local
    ]
    return list(map(_local_dead_letters_note, dict.fromkeys(paths)))


def _local_dead_letters_note(path: str) -> str:
    """Return a warning about a dead-letter directory on the local disks of executors."""
    return (
        f"The dead-letter directory {path} is a local one: each executor writes to its own "
        "machine, and the files are lost with the machine. Unless all machines mount it, give "
        "DeadLetterDirectory a URI such as s3://bucket/dead-letters, or use DeadLetterStream"
    )
