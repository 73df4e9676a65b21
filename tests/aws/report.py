"""The report of a check, as Markdown. Values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tests.aws.findings import Answer, Finding, Verdict
from tests.aws.resources import Resource
from tests.aws.spending import Use


@dataclass(frozen=True, slots=True)
class Report:
    """All that a check found."""

    service: str
    """What was checked, such as "AWS (account 123456789012, eu-west-1)"."""
    at: datetime
    seconds: float
    findings: Sequence[Finding]
    used: Use
    cost_at_most: float
    """US dollars."""
    not_removed: dict[Resource, str]

    @property
    def is_good(self) -> bool:
        """True if nothing is otherwise than assumed, and nothing was left behind."""
        return not self.not_removed and all(
            finding.verdict is not Verdict.OTHERWISE for finding in self.findings
        )


def shown(answer: Answer, unit: str) -> str:
    """Return an answer as a table shows it."""
    if answer.value is None:
        return "-"
    if isinstance(answer.value, bool):
        return "yes" if answer.value else "no"
    if isinstance(answer.value, int):
        return f"{answer.value:,} {unit}".rstrip()
    return answer.value


def summary(report: Report) -> str:
    """Return the counts of all verdicts in one line."""
    verdicts = [finding.verdict for finding in report.findings]
    return ", ".join(f"{verdicts.count(one)} {one.value}" for one in Verdict)


def markdown(report: Report) -> str:
    """Return the whole report as Markdown, with aligned tables."""
    parts = [
        f"# What {report.service} answers",
        f"{report.at:%Y-%m-%d %H:%M} UTC, in {report.seconds:.0f} seconds. {summary(report)}.",
        _table(report.findings),
        *_section("## Not as assumed", report, Verdict.OTHERWISE),
        *_section("## Not measured", report, Verdict.NOT_MEASURED),
        "## Notes",
        _bullets(
            f"`{one.question.key}`: {one.answer.note}"
            for one in report.findings
            if one.answer.note and one.answer.value is not None
        ),
        "## Cost",
        _cost(report),
    ]
    if report.not_removed:
        parts += [
            "## NOT REMOVED",
            _bullets(f"{resource}: {why}" for resource, why in report.not_removed.items()),
        ]
    return "\n\n".join(parts) + "\n"


def _cost(report: Report) -> str:
    used = report.used
    return (
        f"At most ${report.cost_at_most:.4f}: {used.shards} shards opened, {used.puts:,} records "
        f"put, {used.writes:,} writes and {used.reads:,} reads of DynamoDB counted."
    )


def _table(findings: Sequence[Finding]) -> str:
    rows = [("key", "question", "answer", "verdict")]
    for one in findings:
        answer = shown(one.answer, one.question.unit)
        rows.append((f"`{one.question.key}`", one.question.text, answer, one.verdict.value))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_row(rows[0], widths), _row(["-" * width for width in widths], widths)]
    return "\n".join([*lines, *(_row(row, widths) for row in rows[1:])])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _section(title: str, report: Report, verdict: Verdict) -> list[str]:
    found = [one for one in report.findings if one.verdict is verdict]
    if not found:
        return []
    return [title, _bullets(_told(one) for one in found)]


def _told(one: Finding) -> str:
    """Return what is assumed, what was answered, and where to look."""
    answer = shown(one.answer, one.question.unit)
    said = one.answer.note if one.answer.value is None else f"the answer is: {answer}"
    return (
        f"`{one.question.key}`: {said}. Assumed: {one.question.assumed}. On this rest: "
        f"{', '.join(f'`{module}`' for module in one.question.modules)}."
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
