"""The settings of a fleet."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sparkinesis.errors import OptionError
from sparkinesis.public import public
from sparkinesis.worker.options import LONGEST


@public
@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Durations are in seconds. Raises `OptionError` for a value that cannot be used."""

    heartbeat_interval: float = 2.0
    """Time between two signs of life, of workers to the driver and of the driver to workers."""
    lost_after: float = 10.0
    """A side that is not heard of for so long is lost: a worker without driver shuts down
    gracefully, a driver without worker says so."""
    host: str | None = None
    """The driver's name or address for the executors; None: as Spark's own ``spark.driver.host``,
    or with Spark Connect the address by which this machine reaches the server."""
    bind: str | None = None
    """The address to listen on; None: ``spark.driver.bindAddress``, else the host."""
    port: int = 0
    """The port to listen on; 0: any that is free. Give one where a firewall is in between."""
    first_backoff: float = 1.0
    """The wait before a worker's job is submitted again; doubled for each failure in a row."""
    longest_backoff: float = 60.0
    job_group: str | None = None
    """Spark's job group, and a tag of its jobs; None: ``sparkinesis`` and the application."""
    log_level: int | str = logging.INFO
    """Of the lines that workers write to the executors' stderr."""

    def __post_init__(self) -> None:
        for name in ("heartbeat_interval", "lost_after", "first_backoff", "longest_backoff"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value <= LONGEST:
                raise OptionError(
                    f"{name} is {value!r}; it must be a positive number of seconds, and no "
                    "more than ten years."
                )
        if self.lost_after < 2 * self.heartbeat_interval:
            raise OptionError(
                f"lost_after is {self.lost_after:g} s; it must be at least two heartbeat_intervals "
                f"({self.heartbeat_interval:g} s), or one late heartbeat would end a worker."
            )
        if (
            isinstance(self.port, bool)
            or not isinstance(self.port, int)
            or not (0 <= self.port < 65536)
        ):
            raise OptionError(f"port is {self.port!r}; it must be between 0 and 65535.")
        for name in ("host", "bind", "job_group"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise OptionError(f"{name} is {text!r}; leave it out or give it a value.")
        level = self.log_level
        if isinstance(level, str):
            level = logging.getLevelName(level)
        if isinstance(level, bool) or not isinstance(level, int):
            raise OptionError(
                f"log_level is {self.log_level!r}; it must be one of logging's, such as 'INFO'."
            )


DEFAULT_FLEET_OPTIONS = FleetOptions()
