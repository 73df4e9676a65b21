"""The two moments in a batch at which a kill is worst: before and after the sink's commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.spark.lakes.files import new_files
from tests.spark.lakes.program import Checkpoint


class Moments:
    """What is seen of a query at such a moment.

    last_batch: returns the newest batch that the sink has committed, or -1.
    """

    def __init__(self, checkpoint: Checkpoint, files: Path, last_batch: Callable[[], int]) -> None:
        self._checkpoint = checkpoint
        self._files = files
        self._last_batch = last_batch

    def before_the_commit(self) -> bool:
        """Whether files of the batch are written, and the sink has not committed them."""
        return (
            self._checkpoint.is_open()
            and bool(new_files(self._files, self._checkpoint))
            and self._last_batch() < self._checkpoint.planned()
        )

    def after_the_commit(self) -> bool:
        """Whether the sink has committed the batch, and Spark's checkpoint does not know that."""
        return self._checkpoint.is_open() and self._last_batch() == self._checkpoint.planned()
