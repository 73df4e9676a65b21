"""All subjects of simulation."""

from __future__ import annotations

from typing import Any

from tests.simulation.query.subject import SUBJECT as QUERIES
from tests.simulation.queues.subject import QUEUES
from tests.simulation.several.subject import SEVERAL
from tests.simulation.subject import Subject
from tests.simulation.workers import (
    AWAY,
    HOLDING,
    LED,
    RELAXED,
    STORING,
    SUBSCRIBERS,
    WAYS,
    WORKERS,
)

SUBJECTS: tuple[Subject[Any], ...] = (
    WORKERS,
    SUBSCRIBERS,
    AWAY,
    HOLDING,
    RELAXED,
    WAYS,
    STORING,
    LED,
    SEVERAL,
    QUERIES,
    QUEUES,
)
