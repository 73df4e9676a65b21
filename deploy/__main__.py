"""Writes the files of this folder that are made of tables: ``python -m deploy``.

``prometheus/rules.yml`` and ``grafana/sparkinesis.json`` of the catalogue of metrics, and
``iam/*.json`` of `deploy.iam`. Needs the extra ``test``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from deploy.iam import POLICIES, document
from deploy.rules import DEFAULTS, Thresholds, rules

HERE = Path(__file__).parent
RULES = Path("prometheus/rules.yml")
DASHBOARD = Path("grafana/sparkinesis.json")
IAM = Path("iam")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy")
    parser.add_argument("--to", type=Path, default=HERE, help="folder; default: deploy")
    parser.add_argument(
        "--lag", type=int, default=DEFAULTS.lag, metavar="SECONDS", help="default: half a day"
    )
    parser.add_argument(
        "--checkpoint-age",
        type=int,
        default=DEFAULTS.checkpoint_age,
        metavar="SECONDS",
        help="default: 15 minutes",
    )
    parser.add_argument(
        "--processing",
        type=int,
        default=DEFAULTS.processing,
        metavar="SECONDS",
        help="of one call of process_records; default: 10 minutes",
    )
    parser.add_argument(
        "--failures",
        type=int,
        default=DEFAULTS.failures,
        metavar="COUNT",
        help="failed calls within 10 minutes that are no alarm; default: 5",
    )
    parser.add_argument(
        "--table",
        type=int,
        default=DEFAULTS.table,
        metavar="SECONDS",
        help="since the lease table was seen; default: 2 minutes",
    )
    parser.add_argument(
        "--progress",
        type=int,
        default=DEFAULTS.progress,
        metavar="SECONDS",
        help="of one batch of a query; default: 30 minutes",
    )
    parser.add_argument("--only", choices=("rules", "dashboard", "iam"), help="default: all")
    options = parser.parse_args()
    if options.only in (None, "iam"):
        for policy in POLICIES:
            _write(options.to / IAM / f"{policy.name}.json", document(policy))
    if options.only in (None, "rules"):
        limits = Thresholds(
            lag=options.lag,
            checkpoint_age=options.checkpoint_age,
            processing=options.processing,
            failures=options.failures,
            table=options.table,
            progress=options.progress,
        )
        _write(options.to / RULES, rules(limits))
    if options.only in (None, "dashboard"):
        # Its library needs Python 3.11, and the rules do not.
        from deploy.dashboard import dashboard  # noqa: PLC0415

        _write(options.to / DASHBOARD, dashboard())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)


if __name__ == "__main__":
    main()
