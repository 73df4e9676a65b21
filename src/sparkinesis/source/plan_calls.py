"""Counts the calls to Kinesis that the plans of one stream make."""

from __future__ import annotations

import threading

from sparkinesis.metrics.catalogue import CALL_DURATION
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Labels, NoMetrics


class PlanCalls(NoMetrics):
    """The numbers of calls since the query's start. For the threads of probers."""

    def __init__(self) -> None:
        self.probes = 0
        """Attempts of GetRecords."""
        self.throttled = 0
        """Attempts of any call that Kinesis throttled."""
        self._lock = threading.Lock()

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        del value
        if histogram is not CALL_DURATION:
            return
        _, _, operation, result = labels
        with self._lock:
            self.probes += operation == "GetRecords"
            self.throttled += result == "throttled"
