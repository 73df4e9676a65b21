"""Writes the files of this folder that are made of tables: ``python -m deploy``.

``prometheus/rules.yml`` and ``grafana/sparkinesis.json`` of the catalogue of metrics,
``cloudwatch/*.json`` of `deploy.alarms`, and ``iam/*.json`` of `deploy.iam`. Needs the extra
``test``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from deploy import alarms, iam
from deploy.rules import DEFAULTS, Thresholds, rules

HERE = Path(__file__).parent
RULES = Path("prometheus/rules.yml")
DASHBOARD = Path("grafana/sparkinesis.json")
IAM = Path("iam")
ALARMS = Path("cloudwatch")
KINDS = ("rules", "dashboard", "iam", "alarms")
LIMITS = (
    ("lag", "SECONDS", "default: half a day"),
    ("checkpoint_age", "SECONDS", "default: 15 minutes"),
    ("processing", "SECONDS", "of one call of process_records; default: 10 minutes"),
    ("failures", "COUNT", "failed calls within 10 minutes that are no alarm; default: 5"),
    ("table", "SECONDS", "since the lease table was seen; default: 2 minutes"),
    ("progress", "SECONDS", "of one batch of a query; default: 30 minutes"),
    ("redeliveries", "PERCENT", "of the records that a queue delivers; default: 10"),
)
"""An option for each of the `Thresholds`: its field, its unit and its help."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy")
    parser.add_argument("--to", type=Path, default=HERE, help="folder; default: deploy")
    for name, metavar, text in LIMITS:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=int,
            default=getattr(DEFAULTS, name),
            metavar=metavar,
            help=text,
        )
    parser.add_argument("--only", choices=KINDS, help="default: all")
    options = parser.parse_args()
    if options.only in (None, "iam"):
        for policy in iam.POLICIES:
            _write(options.to / IAM / f"{policy.name}.json", iam.document(policy))
    if options.only in (None, "alarms"):
        for alarm in alarms.ALARMS:
            _write(options.to / ALARMS / f"{alarm.name}.json", alarms.document(alarm))
    if options.only in (None, "rules"):
        limits = Thresholds(**{name: getattr(options, name) for name, _, _ in LIMITS})
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
