"""`SparkLauncher`: runs a supervisor's workers as tasks of Spark, and connects them with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkinesis.fleet.channel.control_server import ControlServer
from sparkinesis.fleet.channel.tls import DriverIdentity
from sparkinesis.fleet.executor_worker import WorkerSpec
from sparkinesis.fleet.jobs import SparkJobs, check_sendable
from sparkinesis.fleet.options import FleetOptions
from sparkinesis.fleet.view import reads
from sparkinesis.status import FleetState
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.supervision.messages import Hello, ToWorker
from sparkinesis.worker.supervision.roster import Rules
from sparkinesis.worker.supervision.supervisor import Launcher, Post, message_of
from sparkinesis.worker.supervision.supervisor_state import SupervisorState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOPPED = (
    "the Spark session was stopped, or its Spark Connect server has ended. Call the fleet's "
    "shutdown() before spark.stop(); after the end of a server, start the program again: it goes "
    "on from the checkpoints"
)


class SparkLauncher(Launcher):
    """Launches workers as tasks of Spark jobs, which connect to this process over TLS."""

    _post: Post
    _control: ControlServer

    def __init__(
        self, application: ApplicationSettings, spark: SparkSession, options: FleetOptions
    ) -> None:
        """Raises `OptionError`, `ProcessorError` and `FleetError`. Opens nothing."""
        # Spark's tags may not contain a comma.
        self.group = (options.job_group or f"sparkinesis {application.name}").replace(",", " ")
        reading = reads(application.stream_names())
        self._jobs = SparkJobs(spark, self.group, f"{application.name} on {reading}")
        self._bind, host = self._jobs.driver_address(options)
        self._identity = DriverIdentity.new()
        self._spec = WorkerSpec(
            application,
            host,
            options.port,
            self._identity.credentials,
            options.heartbeat_interval,
            options.lost_after,
            options.log_level,
        )
        check_sendable(application)
        self.rules = Rules(
            options.heartbeat_interval,
            options.lost_after,
            options.first_backoff,
            options.longest_backoff,
            self._jobs.max_failures(),
        )
        """How long a worker may be silent, and how often one of its task may fail."""

    @property
    def is_local(self) -> bool:
        """True if tasks run in this process's local Spark; False also if that is unknown."""
        return self._jobs.is_local

    def open(self, post: Post) -> None:
        """Listen for workers. Raises `FleetError` if the address cannot be listened on."""
        self._post = post
        self._control = ControlServer(
            self._bind,
            self._spec.port,
            self._identity,
            lambda worker_id, message: post((worker_id, message), message_of(worker_id, message)),
        )
        self._spec = replace(self._spec, port=self._control.port)

    def submit(self, job: int, slots: Sequence[int]) -> None:
        self._jobs.submit(job, slots, self._spec, lambda error: self._job_ended(job, error))

    def _job_ended(self, job: int, error: str | None) -> None:
        """Post the end of a job; called in the job's thread."""

        def change(state: SupervisorState, now: float) -> SupervisorState:
            is_running = state.roster.state is FleetState.RUNNING
            if error is not None and is_running and self._jobs.is_stopped():
                state = state.cannot_run(_STOPPED)
            return state.job_ended(job, error, now)

        self._post(f"job {job} has ended: {error}", change)

    def cancel(self, job: int, *, at_once: bool) -> None:
        del at_once  # Spark knows one way only
        self._jobs.cancel(job)

    def send(self, message: ToWorker, worker_id: str | None = None) -> None:
        self._control.send(message, worker_id)

    def drop(self, worker_id: str) -> None:
        self._control.drop(worker_id)

    def must_move(self, worker: Hello) -> bool:
        return self._jobs.is_decommissioned(worker.stage_id, worker.task_attempt_id)

    def close(self) -> None:
        self._control.close()
