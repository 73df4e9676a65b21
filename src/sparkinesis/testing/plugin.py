"""The fixtures of pytest, which finds this module by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparkinesis.application import Application
    from sparkinesis.testing.application_run import Result
    from sparkinesis.testing.sandbox import Sandbox
    from sparkinesis.testing.world import Given


@pytest.fixture
def kinesis() -> Iterator[Sandbox]:
    """A local Kinesis in this process, whose time stands still: see `sparkinesis.testing`."""
    # Imported here: most tests of a project need none.
    from sparkinesis.testing.sandbox import Sandbox  # noqa: PLC0415

    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def run_application(kinesis: Sandbox) -> Callable[..., Result]:
    """Runs an application on records until all are processed; returns what it has done."""

    def run(
        application: Application,
        records: Iterable[Given],
        *,
        until: Callable[[], object] | None = None,
        crash_after: int | None = None,
        shards: int = 1,
        timeout: float = 10.0,
    ) -> Result:
        """Run an application on records, and shut it down; return what it has done.

        until: the condition that ends the run; None: all records are processed, or given up as
        on_error asks. crash_after: after so many user records, the worker is abandoned as by ``kill
        -9``, and another one takes over. shards, timeout: as in `Sandbox.run`.

        Raises the error that ended the worker, and AssertionError if the run takes too long, or if
        it has fewer records than ``crash_after``.
        """
        with kinesis.run(application, shards=shards, timeout=timeout) as running:
            if crash_after is not None:
                running.crash_after(crash_after)
            running.put(records, until=until)
        result = running.result
        if crash_after is not None and len(result.processed) < crash_after:
            raise AssertionError(
                f"No worker crashed: crash_after is {crash_after}, and the run processed "
                f"{len(result.processed)} records."
            )
        return result

    return run
