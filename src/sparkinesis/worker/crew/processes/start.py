"""Runs an application's workers in processes: everything that is checked before any starts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.crew.pickling import Destination, check_picklable
from sparkinesis.worker.crew.processes.count import process_count
from sparkinesis.worker.crew.processes.main_module import check_main_module, exit_if_imported
from sparkinesis.worker.crew.processes.supervisor import Supervisor
from sparkinesis.worker.new_worker import new_worker

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
    # The port first, before anything is called.
    with Supervisor(application, pickled, count, set_up_log) as supervisor:
        _check_surroundings(application)
        supervisor.run()


def _check_surroundings(application: ApplicationSettings) -> None:
    """Find the streams, and create the lease table, as a worker does before its start."""
    options = replace(application.options, http=None, metrics=(), on_event=None)
    new_worker(replace(application, options=options)).shutdown()
