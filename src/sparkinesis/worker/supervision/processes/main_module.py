"""The program's main module, which each worker process imports again before it begins."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

from sparkinesis.errors import OptionError, ProcessorError

UNGUARDED = 113
"""The exit code of a process that would start workers while it imports its main module."""


def exit_if_imported() -> None:
    """End a worker process that imports a main module which starts worker processes.

    Quietly: the supervisor sees the exit code, and tells once what is wrong.
    """
    # As multiprocessing recognises the same mistake, in multiprocessing.spawn.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def unguarded_error() -> OptionError:
    return OptionError(
        "The program starts its worker processes when it is imported, and each of them imports it "
        'again. Put run(processes=...) below `if __name__ == "__main__":`, so that only the '
        "program itself runs it. No worker has started."
    )


def check_main_module(pickled: bytes) -> None:
    """Raise `ProcessorError` if a worker process cannot import what the application refers to."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    is_found = getattr(main, "__spec__", None) is not None or (path and Path(path).is_file())
    if not is_found and b"__main__" in pickled:
        raise ProcessorError(
            "The application refers to something that was defined in an interactive session, which "
            "worker processes cannot import. Put the processor into a module, and give it by name: "
            'processor="package.module:name".'
        )
