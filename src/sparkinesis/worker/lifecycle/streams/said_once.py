"""A problem of a worker that is said once, again when it changes, and when it ends."""

from __future__ import annotations

import logging

from sparkinesis.errors import SparkinesisError
from sparkinesis.worker.reporting.failures import Failures, describe

_log = logging.getLogger(__name__)


class SaidOnce:
    """A problem that may last. For one thread.

    what: what fails, as logged. until: what happens meanwhile, as logged.
    """

    def __init__(self, failures: Failures, what: str, until: str) -> None:
        self._failures = failures
        self._what = what
        self._until = until
        self._said: str | None = None

    def note(self, error: BaseException) -> None:
        """Log and count an error, unless it is the last one again."""
        text = describe(error)
        if text == self._said:
            return
        self._said = text
        self._failures.note(None, self._what, error)
        # The traceback of an error of our own would say nothing more.
        trace = None if isinstance(error, SparkinesisError) else error
        _log.warning("%s; %s: %s", self._what, self._until, text, exc_info=trace)

    def end(self) -> None:
        """Note a success."""
        if self._said is not None:
            self._said = None
            _log.info("%s no longer", self._what)
