"""Finds the part of an application that cannot be pickled for another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkinesis.errors import OptionError, ProcessorError, SparkinesisError
from sparkinesis.worker.supervision.supervised import Supervised

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
