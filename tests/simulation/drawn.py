"""Settings for tests over histories that hypothesis draws: always the same ones."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def drawn(histories: int) -> settings:
    """Draws this many histories and simplifies one that fails; see ``make simulate`` for more."""
    return settings(
        derandomize=True,
        max_examples=histories,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow,),
    )
