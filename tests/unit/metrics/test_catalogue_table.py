"""The page on metrics names each metric as the catalogue and the exporters do."""

from __future__ import annotations

from sparkinesis.metrics.catalogue import CATALOGUE
from tests.unit.metrics.catalogue_table import PAGE, groups, table, written


def test_each_metric_is_in_one_group() -> None:
    grouped = [metric for metrics in groups().values() for metric in metrics]
    assert grouped == list(CATALOGUE)


def test_the_page_has_the_table() -> None:
    """Else put it there by ``python -m tests.unit.metrics.catalogue_table --write``."""
    page = PAGE.read_text("utf-8")
    assert table().strip() in page
    assert written() == page, "nothing else changes"
