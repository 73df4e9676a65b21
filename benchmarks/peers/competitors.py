"""Who is measured, and what each of them can do."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

OURS = "sparkinesis"
PATH_OF_OURS = "."
"""The requirement that stands for a checkout of sparkinesis."""


@dataclass(frozen=True)
class Competitor:
    name: str
    requirements: tuple[str, ...]
    consumer: str
    """The module in `benchmarks.peers.consumers`."""
    oldest_python: tuple[int, int] = (3, 10)
    has_leases: bool = True
    """Whether several workers share a stream by a table."""
    has_fan_out: bool = True
    unpacks: bool = True
    """Whether records that the KPL has aggregated come as user records."""
    has_arrow: bool = False
    """Whether records come as Arrow columns, too."""
    waits_between_pages: bool = False
    """Whether the pause between two reads also delays a backlog."""
    starts_slowly: bool = False
    """Whether it waits for half a minute or more before it reads with a new table."""
    backlog_rounds: int = 1_000
    """The most rounds of backlogs: of a competitor that takes very long to start."""
    needs_java: bool = False
    revision: str | None = None
    """Of sparkinesis, in git; None: the files of its folder."""
    folder: Path | None = None
    """With the files of sparkinesis; None: this checkout."""


SPARKINESIS = Competitor(OURS, (PATH_OF_OURS,), "sparkinesis", has_arrow=True)
PEERS = (
    Competitor(
        "kcl-rs",
        ("kcl-rs==0.1.4",),
        "kcl_rs",
        (3, 11),
        waits_between_pages=True,
        starts_slowly=True,
    ),
    Competitor(
        "native-aws-kcl-py",
        ("native-aws-kcl-py==0.1.1",),
        "native_aws_kcl",
        has_fan_out=False,
        unpacks=False,
        starts_slowly=True,
    ),
    Competitor(
        "async-kinesis",
        ("async-kinesis[dynamodb,kpl]==3.0.1", "aws-kinesis-agg>=1.2.3"),
        "async_kinesis",
        has_fan_out=False,
    ),
    Competitor(
        "kclpy-ext",
        ("kclpy-ext==3.1.3.post4",),
        "kclpy_ext",
        waits_between_pages=True,
        starts_slowly=True,
        backlog_rounds=2,
        needs_java=True,
    ),
    Competitor("boto3", ("boto3", "protobuf"), "boto3", has_leases=False, has_fan_out=False),
)


def before(revision: str) -> Competitor:
    """Another revision of sparkinesis, by its name in git or its folder, as a competitor."""
    folder = Path(revision)
    if folder.is_dir():
        return replace(SPARKINESIS, name=f"sparkinesis {folder.name}", folder=folder.resolve())
    return replace(SPARKINESIS, name=f"sparkinesis {revision}", revision=revision)


def unusable(competitor: Competitor, python: tuple[int, int]) -> str | None:
    """The reason why a competitor cannot run here, as a sentence; None if it can."""
    if python < competitor.oldest_python:
        needed = ".".join(map(str, competitor.oldest_python))
        return (
            f"{competitor.name} is left out: it needs Python {needed}, and this is "
            f"{'.'.join(map(str, python))}."
        )
    if competitor.needs_java and shutil.which("java") is None:
        return f"{competitor.name} is left out: it needs Java, and there is no command java."
    return None


def named(names: Sequence[str]) -> list[Competitor]:
    """The peers of these names; all without names. Raises `ValueError` for an unknown name."""
    known = {each.name: each for each in PEERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"There is no peer {', '.join(unknown)}; there are: {', '.join(known)}.")
    return [known[name] for name in names] if names else list(PEERS)
