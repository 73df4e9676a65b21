"""The report of a soak, during and after it: text for people, or one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.soak.growth import Sample
from tests.soak.setting import STREAM
from tests.soak.soak import Soak
from tests.soak.verdict import Verdict, long_lived
from tests.soak.watch import Process, Watch
from tests.streams import active_shards


class Report:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # A log has no width, and a line that is broken cannot be read by a program.
        self._console = Console(width=120, highlight=False, soft_wrap=True)

    def _print(self, kind: str, what: dict[str, Any], text: str | Table) -> None:
        if self._as_json:
            print(json.dumps({"kind": kind, **what}), flush=True)
        else:
            self._console.print(text)

    def note(self, soak_seconds: float, text: str) -> None:
        at = _clock(soak_seconds)
        self._print("note", {"seconds": soak_seconds, "text": text}, f"{at}  {text}")

    def minute(self, soak: Soak) -> None:
        """Prints a line of progress, and the resources of each process."""
        progress = {
            "put": sum(soak.watch.produced().values()),
            "out of the killed query": soak.watch.killed_query.rows,
            "out of the steady query": soak.watch.steady_query.rows,
            "processed": len(soak.watch.numbers),
            "open shards": len(active_shards(soak.kinesis, STREAM)),
        }
        line = ", ".join(f"{name} {count:,}" for name, count in progress.items())
        self._print(
            "progress", {"seconds": soak.seconds, **progress}, f"{_clock(soak.seconds)}  {line}"
        )
        told = [
            {"process": str(process), "processes": sample.processes, **asdict(sample.footprint)}
            for process, sample in sorted(_latest(soak.watch).items())
        ]
        self._print("processes", {"processes": told}, _table("", told))

    def comparison(self, watch: Watch) -> None:
        """Prints the resources of long-lived processes at the start and at the end."""
        told = []
        for process, samples in long_lived(watch).items():
            calm = [sample for sample in samples if sample.calm]
            first, last = calm[0], calm[-1]
            told.append(
                {
                    "process": str(process),
                    **{
                        name: f"{_number(value)} > {_number(after)}"
                        for (name, value), after in zip(
                            asdict(first.footprint).items(),
                            asdict(last.footprint).values(),
                            strict=True,
                        )
                    },
                    "kept": f"{first.expected:.0f} > {last.expected:.0f}",
                }
            )
        self._print(
            "comparison", {"processes": told}, _table("calm at the start > at the end", told)
        )

    def verdict(self, verdict: Verdict) -> None:
        lines = [f"{name}: {_figure(value)}" for name, value in verdict.figures.items()]
        lines += [f"FAILED  {words}" for words in verdict.wrong] or ["all checks hold"]
        self._print("verdict", asdict(verdict), "\n".join(lines))


def _latest(watch: Watch) -> dict[Process, Sample]:
    """The latest sample of each process."""
    moment = max(samples[-1].seconds for samples in watch.samples.values())
    return {
        process: samples[-1]
        for process, samples in watch.samples.items()
        if moment - samples[-1].seconds < 1
    }


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        label = "memory MiB" if name == "memory" else name
        table.add_column(label, justify="left" if name == "process" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_number(value) for value in row.values()))
    return table


def _number(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float | int) else str(value)


def _figure(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_figure(each)}" for name, each in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"
