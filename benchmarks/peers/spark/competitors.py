"""The sources that are compared: their options, and what their Spark sessions need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

REGION = "us-east-1"
OURS = "sparkinesis"
PEER = "aws-kinesis"
"""The name of awslabs' connector, as in format("aws-kinesis")."""
JSON = "-Daws.cborEnabled=false"
"""A system property of the AWS SDK for Java, which else asks for CBOR."""


@dataclass(frozen=True)
class Competitor:
    name: str
    jar: Path | None = None
    """Of the connector; None for sparkinesis."""
    cbor: bool = True
    tuned: bool = False
    source: Path | None = None
    """The folder from which sparkinesis is imported; None: this checkout's."""
    conf: dict[str, str] = field(default_factory=dict)
    names_columns: bool = False
    """Whether the source has the option `columns`; where it has not, the query selects them."""

    @property
    def is_ours(self) -> bool:
        return self.jar is None

    @property
    def data_source(self) -> str:
        return "kinesis" if self.is_ours else "aws-kinesis"

    def session(self) -> dict[str, str]:
        """The settings of the Spark session."""
        if self.jar is None:
            return self.conf
        java = {} if self.cbor else {"spark.driver.extraJavaOptions": JSON}
        return {**self.conf, **java, "spark.jars": str(self.jar)}

    def options(self, endpoint: str, stream: str) -> dict[str, str]:
        """The options that every measurement needs: all records are read, none may be lost."""
        if self.is_ours:
            return {
                "streamName": stream,
                "endpoint": endpoint,
                "region": REGION,
                "initialPosition": "trim_horizon",
            }
        return {
            "kinesis.streamName": stream,
            "kinesis.endpointUrl": endpoint,
            "kinesis.region": REGION,
            "kinesis.kinesisRegion": REGION,
            "kinesis.startingPosition": "TRIM_HORIZON",
            "kinesis.failOnDataLoss": "true",
        }

    def backlog_options(
        self, rows_per_shard: int, record_bytes: int, columns: Sequence[str] = ()
    ) -> dict[str, str]:
        """The further options for a backlog on a server without limits; columns: () means all.

        The connector's task ends when it has `maxFetchRecordsPerShard` rows; with fewer, it waits
        for more for 5 to 10 seconds. So it is tuned with the very number of rows that there are,
        with pages of `PAGE_BYTES`, and with no pause between pages.
        """
        if self.is_ours:
            named = {"columns": ",".join(columns)} if columns and self.names_columns else {}
            return {
                "shardCallsPerSecond": "unlimited",
                "shardBytesPerSecond": "unlimited",
                **named,
            }
        if not self.tuned:
            return {}
        page = max(1, min(10_000, PAGE_BYTES // record_bytes))
        return {
            "kinesis.maxFetchRecordsPerShard": str(rows_per_shard),
            "kinesis.getRecords.numberOfRecordsPerFetch": str(page),
            "kinesis.getRecords.fetchIntervalMs": "0",
        }


PAGE_BYTES = 2_000_000
"""Pages of 2 to 5 MB cost the connector least, of pages of 0.25 to 10 MB with records of 1 KB."""


WAYS = ("tuned-json", "tuned-cbor", "defaults-json")
"""The ways in which the connector reads a backlog: its options, and the encoding."""


def of_backlog(
    jar: Path | None, before: list[tuple[str, Path]], ways: Sequence[str] = WAYS
) -> list[Competitor]:
    """Ours, ours of other revisions, and the connector in each of these `WAYS`."""
    found = _ours(before)
    if jar is not None:
        for way in ways:
            options, encoding = way.split("-")
            found.append(
                Competitor(
                    f"{PEER}, {options}, {encoding.upper()}",
                    jar,
                    cbor=encoding == "cbor",
                    tuned=options == "tuned",
                )
            )
    return found


def by_default(jar: Path | None, before: list[tuple[str, Path]]) -> list[Competitor]:
    """Ours, ours of other revisions, and the connector, each with the options it has by default."""
    found = _ours(before)
    if jar is not None:
        found.append(Competitor(PEER, jar, cbor=False))
    return found


def _ours(before: list[tuple[str, Path]]) -> list[Competitor]:
    return [
        Competitor(OURS, names_columns=True),
        *(
            Competitor(f"{OURS} {name}", source=at, names_columns=_has_columns(at))
            for name, at in before
        ),
    ]


def _has_columns(source: Path) -> bool:
    """Whether sparkinesis in this folder has the option `columns`."""
    table = source / "src/sparkinesis/source/options/option_table.py"
    return table.exists() and '"columns":' in table.read_text()
