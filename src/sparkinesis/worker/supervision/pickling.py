"""Finds the part of an application that cannot be pickled for another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparkinesis.errors import OptionError, ProcessorError, SparkinesisError
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.streams.stream_config import StreamConfig

Dumps = Callable[[object], object]
"""Pickles an object. Raises anything if that is not possible."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Who gets the application, for the text of an error."""

    name: str
    """In the plural, such as "executors"."""
    advice: str
    """What to do with a processor that cannot be pickled."""


def check_picklable(application: ApplicationSettings, dumps: Dumps, to: Destination) -> None:
    """Raise an error that names the part of the application that cannot be pickled.

    `OptionError` for an option or a function of the streams, `ProcessorError` for anything else.
    """
    error = pickling_error(application, dumps)
    if error is None:
        return
    if isinstance(error, OptionError):
        raise error
    raise _explained(application, error, dumps, to) from error


def pickling_error(what: object, dumps: Dumps) -> Exception | None:
    """Return why an object cannot be pickled; None if it can."""
    try:
        dumps(what)
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        return error
    return None


def _explained(
    application: ApplicationSettings, error: Exception, dumps: Dumps, to: Destination
) -> SparkinesisError:
    name = application.name
    for part, value in _functions(application):
        if (mine := pickling_error(value, dumps)) is not None:
            return OptionError(
                f"{part} of the application {name!r} cannot be sent to {to.name}, where each "
                f"worker calls it: {mine}. Everything that it refers to is pickled: create "
                "connections, locks, files and clients within it."
            )
    whose = "its processor"
    streams = application.streams
    for one in () if streams is None or callable(streams) else streams:
        if isinstance(one, StreamConfig) and pickling_error(one, dumps) is not None:
            whose = f"the processor of stream {one.stream!r}"
    return ProcessorError(
        f"The application {name!r} cannot be sent to {to.name}: {error}. Everything that {whose} "
        f"refers to is pickled: {to.advice}"
    )


def _functions(application: ApplicationSettings) -> Iterator[tuple[str, object]]:
    """Yield what each worker calls besides its processors, with its name."""
    if callable(application.streams):
        yield "The function streams", application.streams
    if application.former_streams.only is not None:
        yield "The function only of former_streams", application.former_streams.only
    yield "on_event", application.options.on_event
    yield "on_error", application.on_error
    for exporter in application.options.metrics:
        yield "metrics", exporter
