"""The service's clock, for many who ask at the same moment."""

from __future__ import annotations

from sparkinesis.stream.reading.shared_summary import SharedSummary


class ServiceClock:
    """Tells the service's time by the summary, and what has passed since. For any thread."""

    def __init__(self, summary: SharedSummary) -> None:
        self._summary = summary

    def __call__(self) -> int:
        """Epoch ms. Raises the errors of `StreamClient`, to all who waited for the answer."""
        summary, age = self._summary.with_age()
        return summary.service_time_ms + round(age * 1000)
