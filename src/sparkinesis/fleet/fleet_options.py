"""The options of a fleet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkinesis.errors import Check, OptionError, check_all
from sparkinesis.public import public
from sparkinesis.worker.aws_options import LONGEST


@public
@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of a fleet. Durations are in seconds.

    Raises `OptionError` for a value that cannot be used.
    """

    heartbeat_interval: float = 2.0
    """Default: 2 s. The time between two heartbeats, of each worker to the driver and of the driver
    to each worker."""
    lost_after: float = 10.0
    """Default: 10 s. The time without a heartbeat after which the other side is lost: a worker that
    lost its driver shuts down gracefully, a driver that lost a worker reports it. At least two
    heartbeat intervals."""
    host: str | None = None
    """The name or address by which executors reach the driver. Default: ``spark.driver.host``; with
    Spark Connect, the address by which this machine reaches the server."""
    bind: str | None = None
    """The address to listen on. Default: ``spark.driver.bindAddress`` if set, otherwise ``host``.
    """
    port: int = 0
    """The port to listen on. Default: 0, any free port. Give a port if a firewall must let it pass.
    """
    first_backoff: float = 1.0
    """Default: 1 s. The wait before a failed worker's job is submitted again; doubled for each
    consecutive failure."""
    longest_backoff: float = 60.0
    """Default: 60 s. The longest of these waits."""
    job_group: str | None = None
    """Spark's job group, and a tag of its jobs. Default: ``sparkinesis`` and the application's
    name."""
    log_level: int | str = logging.INFO
    """The level from which workers log to the executors' stderr. Default: INFO."""

    def __post_init__(self) -> None:
        check_all(self._checks())

    def _checks(self) -> Iterator[Check]:
        for name in ("heartbeat_interval", "lost_after", "first_backoff", "longest_backoff"):
            yield (name,), partial(_check_seconds, name, getattr(self, name))
        yield ("lost_after", "heartbeat_interval"), self._check_lost_after
        yield ("port",), self._check_port
        for name in ("host", "bind", "job_group"):
            yield (name,), partial(_check_text, name, getattr(self, name))
        yield ("log_level",), self._check_log_level

    def _check_lost_after(self) -> None:
        if self.lost_after < 2 * self.heartbeat_interval:
            raise OptionError(
                f"lost_after is {self.lost_after:g} s; it must be at least two heartbeat_intervals "
                f"({self.heartbeat_interval:g} s), or one late heartbeat would end a worker."
            )

    def _check_port(self) -> None:
        is_whole = isinstance(self.port, int) and not isinstance(self.port, bool)
        if not is_whole or not 0 <= self.port < 65536:
            raise OptionError(f"port is {self.port!r}; it must be between 0 and 65535.")

    def _check_log_level(self) -> None:
        level = self.log_level
        if isinstance(level, str):
            level = logging.getLevelName(level)
        if isinstance(level, bool) or not isinstance(level, int):
            raise OptionError(
                f"log_level is {self.log_level!r}; it must be one of logging's, such as 'INFO'."
            )


def _check_seconds(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= LONGEST:
        raise OptionError(f"{name} is {value!r}; use seconds, above 0 and at most ten years.")


def _check_text(name: str, text: Any) -> None:
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise OptionError(f"{name} is {text!r}; give a non-empty string or leave it out.")
