"""Metrics as lines for CloudWatch Logs, which makes metrics of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sparkinesis.errors import OptionError
from sparkinesis.metrics.cloudwatch.emf import lines_of
from sparkinesis.metrics.cloudwatch.pending import Point
from sparkinesis.metrics.cloudwatch.publisher import Fate, Publisher, Sent
from sparkinesis.metrics.cloudwatch.selecting import (
    DEFAULT_MAX_SERIES,
    check_publishing,
    level_of,
    namespace_for,
    selection_for,
)
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.public import public_metrics


@public_metrics
@dataclass(frozen=True, slots=True)
class EmfMetrics:
    """Writes metrics as lines of the CloudWatch embedded metric format (EMF).

    CloudWatch Logs makes metrics of such lines, where Lambda, ECS, EKS or the CloudWatch agent
    passes them on. Names, units and dimensions are those of `CloudWatchMetrics`.

    Raises `OptionError` for a value that cannot be used.
    """

    path: str | None = None
    """The file to append to, such as ``/dev/stderr``; None: standard output."""
    namespace: str | None = None
    """Default: the application's name."""
    level: Literal["summary", "detailed"] = "summary"
    """``"detailed"`` adds what the KCL publishes at its level DETAILED."""
    shard_metrics: bool = False
    """True adds the dimension ``ShardId``: each shard then has metrics of its own."""
    worker_metrics: bool = True
    """False leaves out the dimension ``WorkerIdentifier``."""
    own_metrics: bool = True
    """False publishes only what the KCL publishes, too."""
    flush_every: float = 60.0
    """Seconds between two writes. Each writes a line for each combination of dimensions."""

    def __post_init__(self) -> None:
        check_publishing(self.namespace, self.level, self.flush_every, DEFAULT_MAX_SERIES)
        if self.path is not None and (not isinstance(self.path, str) or not self.path):
            raise OptionError(f"path is {self.path!r}; it must be the path of a file, or None.")

    def open(self, measured: Measured) -> Metrics:
        """Begin to write the metrics of a worker, fleet or query."""
        selection = selection_for(
            measured,
            level_of(self.level),
            by_shard=self.shard_metrics,
            by_worker=self.worker_metrics,
            own=self.own_metrics,
        )
        return Publisher(
            EmfLines(namespace_for(self.namespace, measured), self.path),
            selection,
            flush_every=self.flush_every,
            close_within=_CLOSE_WITHIN,
            most=DEFAULT_MAX_SERIES,
        ).start()


_CLOSE_WITHIN = 3.0


class EmfLines:
    """A file, or standard output, that gets the lines. A file may be renamed at any time."""

    def __init__(self, namespace: str, path: str | None) -> None:
        self.name = "standard output" if path is None else path
        self._namespace = namespace
        self._path = path

    def send(self, points: Sequence[Point]) -> Sent:
        lines = b"".join(lines_of(self._namespace, points))
        try:
            if self._path is None:
                sys.stdout.write(lines.decode())
                sys.stdout.flush()
            else:
                with Path(self._path).open("ab") as file:
                    file.write(lines)
        except (OSError, ValueError) as error:  # ValueError: standard output was closed
            return Sent(Fate.LOST, str(error), type(error).__name__)
        return Sent(Fate.PUBLISHED)

    def close(self) -> None:
        """Do nothing: no file is open."""
