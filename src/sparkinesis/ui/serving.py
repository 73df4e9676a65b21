"""Starts the page of an application, by its name, or by its fleet."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sparkinesis.errors import LeaseTableNotFoundError, OptionError
from sparkinesis.monitor.chosen_streams import ChosenStreams

if TYPE_CHECKING:
    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.ui.watcher import Reported

PORT = 9410
_TABLE_COMES = 120.0
"""Seconds in which a fleet's first worker should have made the lease table."""


class LivePage:
    """A page that is served until it is closed; a context manager."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        """The page's address. Its end is a token. With the token, a browser may move
        the application; without it, the page can only be read."""
        self._stack = stack

    def close(self) -> None:
        """Stop watching the application, and serving."""
        self._stack.close()

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LivePage({self.url.partition('#')[0]!r})"


def serve(fleet: Fleet, *, port: int = PORT, interval: float = 2.0) -> LivePage:
    """Serve the live page of a fleet's application, from the driver, on loopback.

    Returns once the page is served, which takes the first worker of a new application to make the
    lease table; print its ``url``. port: 0 for any that is free. interval:
    seconds between two snapshots.

    Raises `OptionError` for a port that is taken, or if the extra ``ui`` is not installed, and the
    errors of the first snapshot, such as `AccessDeniedError`.
    """
    from sparkinesis.ui.watcher import of_fleet  # noqa: PLC0415 - as the page is

    application, table = fleet.application, fleet.application.table()
    _await_table(table, lambda: fleet.status().state.is_over)
    streams = ChosenStreams.of(
        [application.stream] if application.stream else (),
        application.region,
        application.endpoint,
        application.credentials,
    )
    return serve_table(
        table,
        streams,
        lambda: of_fleet(fleet.status()),
        port=port,
        interval=interval,
    )


def _await_table(table: LeaseTable, is_over: Callable[[], bool]) -> None:
    """Wait until the table exists. Raises `LeaseTableNotFoundError` if it does not come."""
    give_up_at = time.monotonic() + _TABLE_COMES
    while True:
        try:
            table.scan(consistent=False)
        except LeaseTableNotFoundError:
            if is_over() or time.monotonic() > give_up_at:
                raise
            time.sleep(0.5)
        else:
            return


def serve_table(
    table: LeaseTable,
    streams: ChosenStreams,
    report: Callable[[], Reported],
    *,
    port: int,
    interval: float,
) -> LivePage:
    """Serve the page of a lease table. ``report``: asks the workers."""
    require_bokeh()
    # Bokeh takes a second to import.
    from sparkinesis.monitor.lease_monitor import watching  # noqa: PLC0415
    from sparkinesis.ui.browser_page import open_page  # noqa: PLC0415
    from sparkinesis.ui.orders import Orders  # noqa: PLC0415
    from sparkinesis.ui.page_server import PageServer  # noqa: PLC0415
    from sparkinesis.ui.watcher import Watcher  # noqa: PLC0415

    with ExitStack() as stack:
        monitor = stack.enter_context(watching(table, streams, interval))
        watcher = stack.enter_context(Watcher(monitor, report, interval))
        token = secrets.token_urlsafe(24)
        orders = Orders(table, streams)
        server = PageServer(lambda document: open_page(document, watcher), orders, token, port)
        stack.enter_context(server)
        return LivePage(f"http://127.0.0.1:{server.port}/#{token}", stack.pop_all())
    raise AssertionError  # an ExitStack that swallows nothing


def require_bokeh() -> None:
    """Raise `OptionError` unless the packages of the page are installed."""
    try:
        import bokeh.server.server  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise OptionError(
            f"The page needs a package that is not installed ({error.name}): "
            "pip install 'sparkinesis[ui]'"
        ) from None
