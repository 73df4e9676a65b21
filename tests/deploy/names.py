"""The names under which Prometheus knows the metrics of the catalogue."""

from __future__ import annotations

import re

from sparkinesis.metrics.catalogue import SCRAPED
from sparkinesis.metrics.metric import Kind

NAMES = {
    metric.prometheus_name + suffix
    for metric in SCRAPED
    for suffix in (("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",))
}


def named(text: str) -> set[str]:
    """All names of metrics of sparkinesis in a text."""
    return set(re.findall(r"\bsparkinesis_[a-z_]+\b", text))
