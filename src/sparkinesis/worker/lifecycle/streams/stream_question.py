"""The question to the application for the streams to read, which its user's function answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from sparkinesis.errors import OptionError
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams.background import Background, LastingProblem
from sparkinesis.worker.lifecycle.streams.stream_config import StreamSettings
from sparkinesis.worker.reporting.log_context import LogPlace

_log = logging.getLogger(__name__)


class StreamQuestion:
    """Asks for the streams from time to time, in the background. For one thread.

    every: seconds between two questions. blocks_after: seconds after which the user's function,
    which may raise or block, is said to block.
    """

    def __init__(
        self,
        ask: Callable[[], Sequence[StreamSettings]],
        settings: WorkerSettings,
        *,
        every: float,
        blocks_after: float,
    ) -> None:
        self._ask = ask
        self._clock = settings.clock
        self._every = every
        self._blocks_after = blocks_after
        place = LogPlace(settings.application, settings.worker_id)
        self._questions = Background[Sequence[StreamSettings]]("ask-for-streams", 1, place)
        self._due = -math.inf
        self._asked_at: float | None = None
        """The time of the question that is not answered yet."""
        self._problem = LastingProblem(
            settings,
            "Asking for the streams to read fails",
            "they stay as they are, and it will be retried",
        )

    def ask_if_due(self) -> None:
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._every
        if self._asked_at is None:
            self._asked_at = now
            self._questions.start("streams", self._ask)

    def answer(
        self, timeout: float = 0.0, *, has_streams: bool = False, is_first: bool = False
    ) -> Sequence[StreamSettings] | None:
        """Return the answer; None: there is none yet, or none that can be used.

        has_streams: the application has streams; an answer must leave it one at least. is_first:
        raises the errors of the user's function.
        """
        results = self._questions.collect(timeout)
        if not results:
            self._say_if_it_blocks()
            return None
        self._asked_at = None
        answer = results[0][1]
        if not isinstance(answer, Exception) and not answer:
            if is_first:
                _log.warning("The application has no streams to read yet; it goes on asking")
            elif has_streams:
                # More often a fault of the function than a wish: all leases would be released.
                answer = OptionError(
                    "the function given as streams returned no stream at all. To stop reading, "
                    "shut the workers down"
                )
        if isinstance(answer, Exception):
            if is_first:
                raise answer
            self._problem.note(answer)
            return None
        self._problem.end()
        return answer

    def _say_if_it_blocks(self) -> None:
        if self._asked_at is not None and self._clock() - self._asked_at >= self._blocks_after:
            self._problem.note(
                OptionError(
                    "the function given as streams has not returned for "
                    f"{self._blocks_after:.0f} s. Give the calls in it a timeout"
                )
            )
