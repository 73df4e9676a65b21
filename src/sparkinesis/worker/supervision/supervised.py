"""`Supervised`: an application whose workers a supervisor starts. With leases, or of a queue.

Each worker gets it pickled; `check_picklable` finds the part that cannot be sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from sparkinesis.errors import OptionError, ProcessorError, SparkinesisError
from sparkinesis.metrics.metric import AwsPlace
from sparkinesis.metrics.metrics import Metrics, MetricsExporter
from sparkinesis.status import Failure, ShardStatus, StreamStatus
from sparkinesis.worker.on_error import OnError

_A = TypeVar("_A")


class SupervisedWorker(Protocol):
    """A worker, as its host starts it, reports on it, and ends it."""

    @property
    def failure(self) -> BaseException | None: ...
    @property
    def is_shutting_down(self) -> bool: ...
    @property
    def was_graceful(self) -> bool: ...
    def start(self) -> object: ...
    def request_shutdown(self, timeout: float | None = None) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def records_total(self) -> int: ...
    def failures(self) -> tuple[Failure, ...]: ...
    def look_at_health(self) -> None: ...
    def why_not_live(self) -> tuple[str, ...]: ...
    def why_not_ready(self) -> tuple[str, ...]: ...


@runtime_checkable
class ReadsShards(Protocol):
    """What a worker with leases knows besides."""

    @property
    def problem(self) -> str | None: ...
    def status(self) -> list[ShardStatus]: ...
    def streams(self) -> tuple[StreamStatus, ...]: ...
    def unread_shards(self) -> Mapping[str, float] | None: ...


@dataclass(frozen=True, kw_only=True, repr=False)
class Supervised(ABC, Generic[_A]):
    """An application as its supervisor knows it; each worker gets it, pickled."""

    has_shards: ClassVar[bool] = True
    """False: the workers share nothing, and what one had in hand comes again by itself."""
    called: ClassVar[str] = "processor"
    """What gets the records, and where it has to be defined for another process to find it."""
    defined: ClassVar[str] = (
        'at the top level of a module, or give it by name: processor="package.module:name"'
    )
    begins_in: ClassVar[str] = "initialize(), which runs {there}, once per shard"
    """Where its connections have to be made."""

    application: _A
    """The user's."""
    name: str
    reads: str
    """The names of the streams, or of the queue, for people."""
    place: AwsPlace
    http: str | None
    metrics: tuple[MetricsExporter, ...]
    shutdown_within: float
    """Seconds that the workers have for a shutdown."""
    closes_within: float = 0.0
    """Seconds that an orderly end may take beyond these."""
    failover_time: float = 0.0
    """Seconds after which the leases of a worker that has died expire."""
    worker_id: str | None = None
    """The worker's id that the user has given."""

    @abstractmethod
    def worker(self, worker_id: str, tally: Metrics | None, look_every: float) -> SupervisedWorker:
        """Make a worker, whose health the supervisor serves. Raises the errors of a start.

        tally: gets its measurements. look_every: seconds between two calls of
        `SupervisedWorker.look_at_health`.
        """

    @abstractmethod
    def check(self) -> None:
        """Find, or make, what workers need before their start. Raises the errors of a start."""

    @abstractmethod
    def policies(self) -> Iterable[OnError]:
        """Return what becomes of the records that fail."""

    @abstractmethod
    def functions(self) -> Iterable[tuple[str, object]]:
        """Return what each worker calls besides processors or the handler, with its name."""

    def processors(self) -> Iterable[tuple[str, object]]:
        """Return what gets the records, with its name, where there are several."""
        return ()


def check_run(spark: object, workers: int, fleet: object, processes: object) -> None:
    """Raise `OptionError` for arguments of ``run`` that do not go together."""
    if spark is not None and processes is not None:
        raise OptionError(
            "run was given spark and processes: workers run either on Spark's executors or in "
            "processes of this machine. Give one of the two."
        )
    if spark is None and (workers != 1 or fleet is not None):
        raise OptionError(
            f"run was given {'workers' if fleet is None else 'fleet'} without spark, on which they "
            "would run. Give run(spark, workers=8), or run(processes=8) for processes of this "
            "machine."
        )


Dumps = Callable[[object], object]
"""Pickles an object. Raises anything if that is not possible."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Who gets the application, for the text of an error."""

    name: str
    """In the plural, such as "executors"."""
    there: str
    """Where calls run, such as "on executors"."""
    imports: bool
    """They import what is pickled by its name, so that it has to be defined in a module."""


def check_picklable(supervised: Supervised[Any], dumps: Dumps, to: Destination) -> None:
    """Raise an error that names the part of the application that cannot be pickled.

    `OptionError` for an option or a function of the streams, `ProcessorError` for anything else.
    """
    error = pickling_error(supervised, dumps)
    if error is None:
        return
    if isinstance(error, OptionError):
        raise error
    raise _explained(supervised, error, dumps, to) from error


def pickling_error(what: object, dumps: Dumps) -> Exception | None:
    """Return why an object cannot be pickled; None if it can."""
    try:
        dumps(what)
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        return error
    return None


def _explained(
    supervised: Supervised[Any], error: Exception, dumps: Dumps, to: Destination
) -> SparkinesisError:
    name = supervised.name
    for part, value in supervised.functions():
        if (mine := pickling_error(value, dumps)) is not None:
            return OptionError(
                f"{part} of the application {name!r} cannot be sent to {to.name}, where each "
                f"worker calls it: {mine}. Everything that it refers to is pickled: create "
                "connections, locks, files and clients within it."
            )
    failing = (who for who, one in supervised.processors() if pickling_error(one, dumps))
    whose = next(failing, f"its {supervised.called}")
    begins_in = supervised.begins_in.format(there=to.there)
    return ProcessorError(
        f"The application {name!r} cannot be sent to {to.name}: {error}. Everything that {whose} "
        f"refers to is pickled: {f'define it {supervised.defined}; ' if to.imports else ''}create "
        f"connections, locks, files and clients in {begins_in}."
    )
