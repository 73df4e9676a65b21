"""The table of all metrics that ``docs/metrics.md`` shows, made of the catalogue.

python -m tests.unit.metrics.catalogue_table          # prints it
python -m tests.unit.metrics.catalogue_table --write  # puts it into the page
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sparkinesis.metrics import catalogue
from sparkinesis.metrics.cloudwatch.data import names_of as cloudwatch_names
from sparkinesis.metrics.instruments import names_of as otel_names
from sparkinesis.metrics.metric import KclName, Level, Metric

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

_GROUP = re.compile(r"# ---- (?P<group>[^(]*?)(?: \(.*\))? ----|(?P<metric>[A-Z_]+) = _\w+\(")
_COLUMNS = ("metric", "kind", "labels", "Prometheus", "OpenTelemetry", "CloudWatch")
_HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|"


def groups() -> dict[str, list[Metric]]:
    """The metrics under the headings of the catalogue, in its order."""
    found: dict[str, list[Metric]] = {}
    for line in Path(catalogue.__file__).read_text("utf-8").splitlines():
        match = _GROUP.match(line)
        if match is None:
            continue
        if match["group"]:
            found[match["group"]] = []
        else:
            found[list(found)[-1]].append(getattr(catalogue, match["metric"]))
    return found


def table() -> str:
    """The part of the page, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for group, metrics in groups().items():
        yield f"### {group}\n\n{_HEAD}"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            otel = ", ".join(dict.fromkeys(f"`{name.name}`" for name in otel_names(metric)))
            prometheus = f"`{metric.prometheus_name}`" if metric in catalogue.SCRAPED else ""
            cloudwatch = "; ".join(map(_cloudwatch, cloudwatch_names(metric)))
            yield (
                f"| `{metric.name}`<br>{_cell(metric.help)} | {metric.kind.value} | {labels} "
                f"| {prometheus} | {otel} | {cloudwatch} |"
            )
        yield ""


def _cloudwatch(name: KclName) -> str:
    names = ", ".join(f"`{each}`" for each in name.names)
    level = " (detailed)" if name.level is Level.DETAILED else ""
    return f"{name.operation} {names}{level}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def written() -> str:
    """The page with the part of today."""
    page = PAGE.read_text("utf-8")
    first = page.index(f"### {next(iter(groups()))}\n")
    rows = [line for line in page.splitlines(keepends=True) if line.startswith("| `")]
    last = page.rindex(rows[-1]) + len(rows[-1])
    return f"{page[:first]}{table().rstrip()}\n{page[last:]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(), "utf-8")
    else:
        print(table())
