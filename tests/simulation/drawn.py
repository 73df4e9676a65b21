"""Settings for tests over histories that hypothesis draws: always the same ones."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers


def draw_no_constants() -> None:
    """Lets hypothesis draw the same whatever this process has done before.

    It also draws constants that it finds in the source of all modules that are loaded by then.
    """
    providers._get_local_constants = lambda: providers._local_constants


def drawn(histories: int) -> settings:
    """Draws this many histories and simplifies one that fails; see ``make simulate`` for more."""
    return settings(
        derandomize=True,
        max_examples=histories,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow,),
    )
