"""The page on metrics names each metric as the catalogue and the exporters do."""

from __future__ import annotations

from sparkinesis.metrics.catalogue import CATALOGUE
from tests.unit.metrics.catalogue_table import PAGE, groups, table


def test_each_metric_is_in_one_group() -> None:
    grouped = [metric for metrics in groups().values() for metric in metrics]
    assert grouped == list(CATALOGUE)


def test_the_page_has_the_table() -> None:
    """Else print it by ``python -m tests.unit.metrics.catalogue_table``, and put it there."""
    assert table().strip() in PAGE.read_text("utf-8")
