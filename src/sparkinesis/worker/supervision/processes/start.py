"""Runs an application's workers in processes: everything that is checked before any starts."""

from __future__ import annotations

import logging
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.new_worker import new_worker
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.supervision.pickling import Destination, check_picklable
from sparkinesis.worker.supervision.processes.count import process_count
from sparkinesis.worker.supervision.processes.main_module import check_main_module, exit_if_imported
from sparkinesis.worker.supervision.processes.process_launcher import ProcessLauncher
from sparkinesis.worker.supervision.processes.worker_process import KILL_AFTER, REPORT_EVERY
from sparkinesis.worker.supervision.roster import Rules
from sparkinesis.worker.supervision.supervisor import Supervisor

_log = logging.getLogger(__name__)

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
"""Seconds until a process is started again: after a first failure, and at most."""

_TO = Destination(
    "worker processes",
    "define it at the top level of a module, or give it by name, as "
    'processor="package.module:name"; create connections, locks, files and clients in '
    "initialize(), which runs in the worker's process, once per shard.",
)


def run_in_processes(
    application: ApplicationSettings,
    processes: object,
    set_up_log: Callable[[], None] | None = None,
) -> None:
    """Run so many workers, each in a process of its own, until all have ended.

    set_up_log: is called in each process first; can be pickled. None: a process logs to stderr,
    unless the program's main module sets up logging.

    Raises `OptionError`, `ProcessorError` and the errors of `Application.worker` before any process
    is started; and the error that ended the workers, if one did.
    """
    exit_if_imported()
    count = process_count(processes)
    check_picklable(application, pickle.dumps, _TO)
    pickled = pickle.dumps(application)
    check_main_module(pickled)
    launcher = ProcessLauncher(application, pickled, set_up_log)
    rules = Rules(
        heartbeat_interval=REPORT_EVERY,
        lost_after=KILL_AFTER,
        first_backoff=_FIRST_BACKOFF,
        longest_backoff=_LONGEST_BACKOFF,
        max_failures=1,
        are_children=True,
        phase=random.random(),  # noqa: S311 - no secret
    )
    options = application.options
    # Takes the port first, before anything is called.
    supervisor = Supervisor(
        application,
        launcher,
        count,
        rules,
        title=f"Application {application.name}",
        settled_after=options.failover_time + options.taker_interval,
        clock=time.monotonic,
    )
    try:
        _check_surroundings(application)
    except BaseException:
        supervisor.close()
        raise
    _log.info("Application %s runs %d worker processes", application.name, count)
    with graceful_on_signals(partial(_shut_down, supervisor, options.shutdown_timeout)):
        supervisor.run()
    error = supervisor.status.error
    if error is not None:
        raise launcher.error_of(error)


def _shut_down(supervisor: Supervisor, within: float, timeout: float | None) -> None:
    seconds = within if timeout is None else timeout
    supervisor.post(f"shut down within {seconds:g} s", lambda state, _: state.shut_down(seconds))


def _check_surroundings(application: ApplicationSettings) -> None:
    """Find the streams, and create the lease table, as a worker does before its start."""
    options = replace(application.options, http=None, metrics=(), on_event=None)
    new_worker(replace(application, options=options)).shutdown()
