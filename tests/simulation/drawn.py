"""Makes hypothesis draw the same histories in any process."""

from __future__ import annotations

from hypothesis.internal.conjecture import providers


def draw_no_constants() -> None:
    """Lets hypothesis draw the same whatever this process has done before.

    It also draws constants that it finds in the source of all modules that are loaded by then.
    """
    providers._get_local_constants = lambda: providers._local_constants
