"""Processors that are given by name: "package.module:name"."""

from __future__ import annotations

import re
import sys

from sparkinesis.errors import ProcessorError

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def processor_named(given: object) -> object:
    """Return the processor that a name stands for, whose module is imported; others as they are.

    Raises `ProcessorError` for a name of nothing.
    """
    if not isinstance(given, str):
        return given
    import difflib  # noqa: PLC0415 - few processors are given by name
    import pkgutil  # noqa: PLC0415

    module, _, name = given.partition(":")
    if not _NAME.fullmatch(given):
        raise ProcessorError(
            f"The processor is {given[:100]!r}; a processor by name is 'package.module:name', with "
            "the module as in an import, and the name of a class or a function of that module."
        )
    try:
        return pkgutil.resolve_name(given)
    except AttributeError as error:
        if module not in sys.modules:  # the module's own code has raised it
            raise _not_importable(given, module, error) from error
        near = difflib.get_close_matches(name, vars(sys.modules[module]), 1)
        advice = f" Did you mean {module}:{near[0]}?" if near else ""
        raise ProcessorError(
            f"The processor is {given!r}, but the module {module} has no {name}.{advice}"
        ) from error
    except Exception as error:
        raise _not_importable(given, module, error) from error


def _not_importable(given: str, module: str, error: Exception) -> ProcessorError:
    return ProcessorError(
        f"The processor is {given!r}, but the module {module} cannot be imported: "
        f"{type(error).__name__}: {error}. Python looks for it as for any import: in the folder of "
        "the program, in PYTHONPATH and among the installed packages."
    )
