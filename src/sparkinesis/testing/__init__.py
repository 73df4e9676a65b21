"""A testing kit for applications and queries: a stream, its time, and crashes, in one process.

With pytest, the fixtures ``kinesis`` and ``run_application`` are there once sparkinesis is
installed:

    def test_a_record_comes_again_after_a_crash(run_application):
        seen = []
        application = Application("app", "flights", lambda batch: seen.extend(batch.records))
        run_application(application, ["a", "b", "c"], crash_after=2)
        assert [record.data for record in seen] == [b"a", b"b", b"a", b"b", b"c"]

Without pytest, `Sandbox` is a context manager. Needs the extra: pip install 'sparkinesis[local]'.
"""

# In this folder: `sandbox` is the fixture, over the `world` of a test and its records;
# `application_run` runs programs, `processed` knows what is done, `queue_run` runs those of queues,
# of which `queue_calls` knows it. `plugin` has pytest's fixtures. The lease table is
# `local/lease_tables`.

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkinesis.testing.application_run import ApplicationRun, Result
    from sparkinesis.testing.queue_run import QueueRun
    from sparkinesis.testing.sandbox import QueryRun, Sandbox
    from sparkinesis.testing.world import Given

__all__ = ["ApplicationRun", "Given", "QueryRun", "QueueRun", "Result", "Sandbox"]


def __getattr__(name: str) -> object:
    # pytest imports the plugin of this package at each start, also for tests of other things.
    if name in {"ApplicationRun", "Result"}:
        from sparkinesis.testing import application_run as module  # noqa: PLC0415
    elif name == "Given":
        from sparkinesis.testing import world as module  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "QueueRun":
        from sparkinesis.testing import queue_run as module  # type: ignore[no-redef]  # noqa: PLC0415
    elif name in {"QueryRun", "Sandbox"}:
        from sparkinesis.testing import sandbox as module  # type: ignore[no-redef]  # noqa: PLC0415
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(module, name)
    return found
