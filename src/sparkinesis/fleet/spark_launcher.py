"""`SparkLauncher`: runs a supervisor's workers as tasks of Spark, and connects them with it."""

from __future__ import annotations

import logging
import re
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkinesis.errors import OptionError
from sparkinesis.fleet.channel_tls import DriverIdentity
from sparkinesis.fleet.control_server import ControlServer
from sparkinesis.fleet.executor_worker import RESULT, SparkTask, WorkerSpec, task_function
from sparkinesis.fleet.fleet_options import FleetOptions
from sparkinesis.fleet.terminal_view import reads
from sparkinesis.status import FleetState
from sparkinesis.worker.reporting.failures import cut
from sparkinesis.worker.supervision.control_messages import Hello, ToWorker
from sparkinesis.worker.supervision.roster import Rules
from sparkinesis.worker.supervision.supervised import Destination, Supervised, check_picklable
from sparkinesis.worker.supervision.supervisor import Launcher, Post, message_of
from sparkinesis.worker.supervision.supervisor_state import SupervisorState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_VERSIONS = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\] \D*worker has different version: ([\d.]+\d) than that in driver: "
    r"([\d.]+\d)"
)
_LONGEST_REASON = 2_000
"""The most characters of Spark's message when a job fails; its stack traces are cut off."""


_EXECUTORS = Destination("executors", "on executors", imports=False)
_STOPPED = (
    "the Spark session was stopped, or its Spark Connect server has ended. Call the fleet's "
    "shutdown() before spark.stop(); after the end of a server, start the program again: it goes "
    "on where this one has ended"
)


class SparkLauncher(Launcher):
    """Launches workers as tasks of Spark jobs, which connect to this process over TLS."""

    _post: Post
    _control: ControlServer

    def __init__(
        self, supervised: Supervised[Any], spark: SparkSession, options: FleetOptions
    ) -> None:
        """Raises `OptionError`, `ProcessorError` and `FleetError`. Opens nothing."""
        # Spark's tags may not contain a comma.
        self.group = (options.job_group or f"sparkinesis {supervised.name}").replace(",", " ")
        description = f"{supervised.name} on {reads(supervised.reads)}"
        self._jobs = SparkJobs(spark, self.group, description)
        self.is_local = self._jobs.is_local
        self._bind, host = self._jobs.driver_address(options)
        self._identity = DriverIdentity.new()
        self._spec = WorkerSpec(
            supervised,
            host,
            options.port,
            self._identity.credentials,
            options.heartbeat_interval,
            options.lost_after,
            options.log_level,
        )
        _check_sendable(supervised)
        self.rules = Rules(
            options.heartbeat_interval,
            options.lost_after,
            options.first_backoff,
            options.longest_backoff,
            self._jobs.max_failures(),
        )
        """The longest silence of a worker, and the most failures of its task."""

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


class SparkJobs:
    """Submits and cancels a fleet's jobs. For one thread; each job waits in a thread of its own."""

    def __init__(self, spark: SparkSession, group: str, description: str) -> None:
        self._spark = spark
        self._group = group
        self._description = description
        self._run_id = secrets.token_hex(4)
        """Distinguishes the jobs of another fleet of this application in the same session."""
        self._executors: dict[int, str] = {}
        """Executor ids by task attempt id."""
        self._is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
        self._reports_decommissioning = (
            not self._is_connect
            and spark.sparkContext.getConf().get("spark.decommission.enabled") == "true"
        )

    def driver_address(self, options: FleetOptions) -> tuple[str, str]:
        """Return the address that the driver binds, and the host by which executors reach it.

        Raises `OptionError` if it is unknown.
        """
        if self._is_connect:
            host = options.host or self._address_towards_server()
            return options.bind or host, host
        conf = self._spark.sparkContext.getConf()
        is_local = self.is_local
        known = "127.0.0.1" if is_local else conf.get("spark.driver.host", "")
        host = options.host or known
        if not host:
            raise OptionError("Spark does not report the driver's host; set host of FleetOptions.")
        bind = options.bind or (None if is_local else conf.get("spark.driver.bindAddress"))
        return bind or host, host

    @property
    def is_local(self) -> bool:
        """True if tasks run in this process's local Spark; False also if that is unknown."""
        return self._master.startswith("local") and not self._master.startswith("local-cluster")

    @property
    def _master(self) -> str:
        """Spark's master; "" with Spark Connect."""
        return "" if self._is_connect else self._spark.sparkContext.master or ""

    def max_failures(self) -> int:
        """Return how often a task may fail before Spark aborts its job."""
        try:
            if local := re.fullmatch(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?", self._master):
                return int(local[1] or 1)  # local Spark ignores the option
            return int(self._spark.conf.get("spark.task.maxFailures", "4") or 4)
        except Exception as error:  # noqa: BLE001 - a server may refuse the question
            _log.debug("Spark does not report spark.task.maxFailures: %s", error)
            return 4

    def _address_towards_server(self) -> str:
        client: Any = self._spark.client
        server = urlsplit("//" + str(client.host))
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                # Connecting a datagram socket sends nothing; it selects the local address.
                probe.connect((server.hostname or "localhost", server.port or 15002))
                return str(probe.getsockname()[0])
        except OSError as error:
            raise OptionError(
                f"This machine's address for the executors is unknown ({error}); set host of "
                "FleetOptions."
            ) from None

    def submit(
        self,
        job: int,
        slots: Sequence[int],
        spec: WorkerSpec,
        on_end: Callable[[str | None], None],
    ) -> None:
        """Submit a job with a task for each slot.

        ``on_end`` is called in another thread with the reason of a failure, or None.
        """

        def run() -> None:
            error: str | None = None
            try:
                self._run(job, slots, spec)
            except BaseException as raised:  # noqa: BLE001 - any error of Spark is the reason
                error = failure_reason(raised)
            on_end(error)

        thread = threading.Thread(target=run, name=f"{self._group}-{job}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is ending
            on_end(failure_reason(error))

    def _run(self, job: int, slots: Sequence[int], spec: WorkerSpec) -> None:
        # Tags and job group belong to this thread, not to the session.
        self._spark.addTag(self._tag(job))
        self._spark.addTag(self._group)
        if not self._is_connect:
            self._spark.sparkContext.setJobGroup(self._group, self._description)
        rows = self._spark.range(0, len(slots), 1, len(slots))
        rows.mapInArrow(task_function(spec, job, slots, _this_task), RESULT).collect()

    def is_stopped(self) -> bool:
        """Return True if the session has been stopped or its JVM has died."""
        if self._is_connect:
            return bool(self._spark.client.is_closed)
        from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # noqa: PLC0415

        context: Any = self._spark.sparkContext
        try:
            return context._jsc is None or bool(context._jsc.sc().isStopped())
        except (OSError, Py4JNetworkError) as error:
            _log.debug("Spark's JVM does not respond: %s", error)
            return True
        except Exception as error:  # noqa: BLE001 - not a public interface of Spark's
            _log.debug("Spark does not report whether it was stopped: %s", error)
            return False

    def cancel(self, job: int) -> None:
        """Cancel a job, which kills its running tasks."""
        try:
            self._spark.interruptTag(self._tag(job))
        except Exception as error:  # noqa: BLE001 - a stopped session has no jobs
            _log.warning("Cancelling a job of %s failed: %s", self._group, failure_reason(error))

    def _tag(self, job: int) -> str:
        return f"{self._group}/{self._run_id}/{job}"

    def is_decommissioned(self, stage_id: int, task_attempt_id: int) -> bool:
        """Return True if Spark is decommissioning a task's executor; False with Spark Connect."""
        if not self._reports_decommissioning:
            return False
        try:
            context: Any = self._spark.sparkContext._jsc.sc()
            executor = self._executors.get(task_attempt_id)
            if executor is None:
                tasks = context.statusStore().taskList(stage_id, 0, 1_000)
                found = (tasks.apply(index) for index in range(tasks.size()))
                executor = next(t.executorId() for t in found if t.taskId() == task_attempt_id)
                self._executors[task_attempt_id] = executor
            state = context.taskScheduler().getExecutorDecommissionState(executor)
            return bool(state.isDefined())
        except Exception as error:  # noqa: BLE001 - not a public interface of Spark's
            _log.debug("Spark does not report decommissioning: %s", error)
            return False


def _this_task() -> SparkTask:
    from pyspark import TaskContext  # noqa: PLC0415 - on executors only

    context = TaskContext.get()
    assert context is not None, "not within a task"
    return SparkTask(context.stageId(), context.taskAttemptId(), context.attemptNumber())


def _check_sendable(supervised: Supervised[Any]) -> None:
    """Raise an error if executors cannot get the application: see `check_picklable`."""
    from pyspark import cloudpickle  # noqa: PLC0415

    check_picklable(supervised, cloudpickle.dumps, _EXECUTORS)


def failure_reason(error: BaseException) -> str:
    """Return why a job failed, without Spark's Java stack trace, and what to do about it."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = str(java.getMessage() or text)
    for end in ("\nDriver stacktrace:", "\n\tat ", "\nJVM stacktrace:", "\n SQLSTATE:"):
        text = text.split(end)[0]
    return cut(_without_traceback(text.strip()), _LONGEST_REASON) or type(error).__name__


def _without_traceback(text: str) -> str:
    """Cut the traceback off an error whose message says what to do."""
    if ours := re.search(r"^sparkinesis\.errors\.(\w+: .*)", text, re.MULTILINE | re.DOTALL):
        return ours[1]
    if missing := re.search(r"^ModuleNotFoundError: No module named '([^']+)'", text, re.MULTILINE):
        return (
            f"{missing[0]}. Executors cannot import it: install it there, or ship it by --py-files "
            "or spark.addArtifacts(..., pyfile=True)."
        )
    if found := _VERSIONS.search(text):
        theirs, mine = found.groups()
        return (
            f"This program runs Python {mine}, and Spark's workers run Python {theirs}. The "
            "processor is pickled for them, so both must be one minor version. Run this program "
            f"with Python {theirs}, or set PYSPARK_PYTHON to a Python {mine} in the environment of "
            "the Spark driver, which with Spark Connect is the server, before it starts."
        )
    return text
