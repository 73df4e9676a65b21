"""A thread that does something again and again beside a test, and whose error is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], object], every: float) -> Iterator[None]:
    """Call ``act`` with so many seconds before each call; raise its first error at the end."""
    is_over = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not is_over.wait(every):
                act()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run, name="repeating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    for error in errors:
        raise error
