"""The readers of gauges of one worker, fleet or query: asked when somebody looks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from sparkinesis.metrics.metrics import ReadGauges, Sample

_log = logging.getLogger(__name__)


class GaugeReaders:
    """Reads gauges through the readers that were added. A `ReadGauges`. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[ReadGauges] = []
        self._has_told = False

    def add(self, read: ReadGauges) -> Callable[[], None]:
        """Add a reader; returns the function that removes it."""
        with self._lock:
            self._readers.append(read)

        def remove() -> None:
            with self._lock:
                self._readers = [one for one in self._readers if one is not read]

        return remove

    def __call__(self) -> list[Sample]:
        """Return the present value of each gauge. The first reader that raises is logged."""
        with self._lock:
            readers = list(self._readers)
        found: list[Sample] = []
        for read in readers:
            try:
                samples = [Sample(*one) for one in read()]
                for metric, labels, value in samples:
                    # What no system could take must not reach one, for all others would be lost.
                    metric.check(labels)
                    math.isfinite(value)
                found += samples
            except Exception:  # noqa: BLE001 - the other measurements are told nevertheless
                if not self._has_told:
                    self._has_told = True
                    _log.warning(
                        "Gauges could not be read, and are left out. Further errors of this kind "
                        "are not logged.",
                        exc_info=True,
                    )
        return found
