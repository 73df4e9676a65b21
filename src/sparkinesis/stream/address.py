"""Which stream, and how to reach it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A stream's name and place. Travels to executors, so it never holds credentials."""

    name: str
    arn: str | None = None
    region: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        place = self.region or "the default region"
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"stream {self.name!r} in {place}{at}"
