"""docs/runbooks/: what they name exists, alerts lead to them, and the model makes their figures.

The commands are parsed by ``test_documents``, the quoted messages compared by ``test_errors``.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import sparkinesis
import sparkinesis.queue
from benchmarks.cost_model import Application
from deploy.rules import alerts
from sparkinesis import errors, events, sinks, status
from sparkinesis.metrics.catalogue import SCRAPED
from sparkinesis.metrics.metric import Kind
from tests.documents import ROOT, Table, tables, without_blocks

FOLDER = ROOT / "docs" / "runbooks"
PAGES = [*sorted(FOLDER.glob("*.md")), ROOT / "docs" / "errors.md"]
INDEX, SIZING, UPGRADING = (FOLDER / f"{name}.md" for name in ("index", "sizing", "upgrading"))
TROUBLES = [page for page in sorted(FOLDER.glob("*.md")) if page not in {INDEX, SIZING, UPGRADING}]

OF_OTHERS = {
    "AccessDeniedException",
    "BatchExecuteStatement",
    "DecreaseStreamRetentionPeriod",
    "DescribeStreamSummary",
    "GetRecords",
    "GetShardIterator",
    "ImportError",
    "KMSAccessDeniedException",
    "KinesisClientLibDependencyException",
    "ListShards",
    "MaxReceiveCount",
    "PutRecords",
    "PySpark",
    "ResourceNotFoundException",
    "Restart",
    "ThrottlingException",
    "VisibleDeadLetterQueueRecords",
    "VisibleQueueRecords",
}
"""Names of AWS, of the KCL for Java, of Python and of systemd."""

MONTH = 730 * 3600 / 1_000_000
"""The seconds of a month, in millions."""


def named(page: Path, pattern: str) -> set[str]:
    """Return what is in a page's code, as in `code`, and fits a pattern."""
    return {
        found
        for code in re.findall(r"`([^`]+)`", without_blocks(page))
        for found in re.findall(pattern, code)
    }


@cache
def sources() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))


def _classes_of(module: object) -> set[str]:
    return {name for name, _ in inspect.getmembers(module, inspect.isclass)}


def test_each_alert_leads_to_a_runbook() -> None:
    every = {f"Sparkinesis{alert.name}" for alert in alerts()}
    assert named(INDEX, r"Sparkinesis[A-Z]\w+") == every


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_alerts_exist(page: Path) -> None:
    alert = r"\bSparkinesis(?!Error)[A-Z]\w+"
    assert named(page, alert) <= {f"Sparkinesis{each.name}" for each in alerts()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_metrics_exist(page: Path) -> None:
    series = set()
    for metric in SCRAPED:
        suffixes = ("_sum", "_count", "_bucket") if metric.kind is Kind.HISTOGRAM else ("",)
        series |= {f"{metric.prometheus_name}{suffix}" for suffix in suffixes}
        series.add(metric.prometheus_name)
    assert set(re.findall(r"\bsparkinesis_\w+", page.read_text("utf-8"))) <= series


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_events_and_classes_exist(page: Path) -> None:
    ours = {name for each in (errors, events, status) for name in _classes_of(each)}
    ours |= (
        {*sparkinesis.__all__, *sparkinesis.queue.__all__}
        | set(dir(sinks))
        | {"LocalServer"}
        | {f"Sparkinesis{a.name}" for a in alerts()}
    )
    words = named(page, r"(?<![\w./-])[A-Z][a-z]+(?:[A-Z][a-z]+)+\b(?!-)")
    assert words - OF_OTHERS <= ours


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_options_attributes_and_methods_exist(page: Path) -> None:
    words = named(page, r"(?<![\w./-])[a-z]+(?:_[a-z]+)+\b")
    metrics = {word for word in words if word.startswith("sparkinesis_")}
    left = {word for word in words - metrics if not re.search(rf"\b{word}\b", sources())}
    assert left == set()


@pytest.mark.parametrize("page", TROUBLES, ids=lambda page: page.name)
def test_a_runbook_has_a_symptom_checks_in_order_and_an_end(page: Path) -> None:
    text = page.read_text("utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    numbers = [int(one.partition(".")[0]) for one in headings if one[0].isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 3 <= len(numbers) <= 6
    assert headings[-1] == "It is over when"
    assert "**You see**" in text.partition("\n## ")[0]
    assert re.search(r"`[^`]+`", text.rpartition("## It is over when")[2])


def _figures() -> Table:
    (found,) = [table for table in tables(SIZING) if table.head[0] == "shards"]
    return found


@pytest.mark.parametrize("row", _figures().rows, ids=lambda row: row[0])
def test_the_figures_of_sizing_are_those_of_the_model(row: list[str]) -> None:
    shards, workers = (int(cell.replace(",", "")) for cell in row[:2])
    cost = Application(shards, workers, checkpoints=0.1)
    assert row[2:] == [
        f"{cost.get_records:,.0f}",
        f"{cost.renewal_calls:,.1f}",
        f"{cost.write_units:,.1f}",
        f"{cost.read_units:,.1f}",
        f"{cost.write_units * MONTH:,.1f}",
        f"{cost.read_units * MONTH:,.1f}",
    ]
