"""A problem of a worker that is said once, again when it changes, and when it ends."""

from __future__ import annotations

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import TroubleBegan, TroubleEnded
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.reporting.failures import describe


class SaidOnce:
    """A problem that may last. For one thread.

    what: what fails. until: what happens meanwhile. Both are told.
    """

    def __init__(self, settings: WorkerSettings, what: str, until: str) -> None:
        self._failures = settings.failures
        self._tell = settings.tell
        self._what = what
        self._until = until
        self._said: str | None = None

    def note(self, error: BaseException) -> None:
        """Tell and count an error, unless it is the last one again."""
        text = describe(error)
        if text == self._said:
            return
        self._said = text
        self._failures.note(None, self._what, error)
        # The traceback of an error of our own would say nothing more.
        trace = None if isinstance(error, SparkinesisError) else error
        self._tell(TroubleBegan(self._what, self._until, text), trace)

    def end(self) -> None:
        """Note a success."""
        if self._said is not None:
            self._said = None
            self._tell(TroubleEnded(self._what))
