"""The requirements of the wheel, and the constraints that choose an environment's versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

from tests.compat.environments import LOWEST, NEWEST, Environment

EXTRAS = ("spark", "local", "prometheus", "otel", "ui")
"""Of the product. What only tests need is always the newest."""

_REQUIREMENT = re.compile(r"([\w.-]+)(\[[\w,-]+\])?([^;]*)(?:; *(.*))?$")


def of_wheel(wheel: Path) -> list[str]:
    """All requirements, with their markers, as the wheel's metadata states them."""
    with ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    return metadata.get_all("Requires-Dist", [])


def of_product(stated: Sequence[str]) -> dict[str, str]:
    """Those of the product by project: such as ``moto[dynamodb]>=5.1`` of ``moto``."""
    return {project: text for project, text, extra in _parsed(stated) if extra in {None, *EXTRAS}}


def of_tests(stated: Sequence[str], *, has_connect: bool) -> list[str]:
    """Those that the extra ``test`` adds."""
    product = of_product(stated)
    return [
        text
        for project, text, extra in _parsed(stated)
        if extra == "test" and (project not in product or ("[connect]" in text and has_connect))
    ]


def _parsed(stated: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """Project, requirement with its other marker, and extra."""
    for line in stated:
        found = _REQUIREMENT.match(line)
        assert found, line
        project, extras, bounds, marker = found.groups(default="")
        extra = re.search(r"""extra == ['"](\w[\w-]*)['"]""", marker)
        left = re.sub(r"""(^| and )extra == ['"][\w-]+['"]""", "", marker).strip()
        text = f"{project}{extras}{bounds.strip()}" + (f" ; {left}" if left else "")
        yield project.lower(), text, extra and extra[1]


def chosen(environment: Environment, projects: Mapping[str, str]) -> dict[str, str]:
    """The choice of each project: LOWEST, NEWEST or a specifier."""
    own = {each: getattr(environment, each) for each in ("pyspark", "pandas", "pyarrow", "boto3")}
    return {project: own.get(project, environment.others) for project in projects}


def ranges(choices: Mapping[str, str]) -> list[str]:
    """The constraints that the table itself states."""
    return [f"{name}{way}" for name, way in choices.items() if way not in {LOWEST, NEWEST}]


def bound(requirement: str) -> str:
    """The lower bound: ``0.18.5`` of ``msgspec>=0.18.5``."""
    found = re.search(r">=([\d.]+)", requirement)
    assert found, requirement
    return found[1]


def is_lowest(version: str, requirement: str) -> bool:
    """Whether a version is of the release that the bound names: 5.26.0 of ``protobuf>=5``."""
    lowest = bound(requirement).split(".")
    return version.split(".")[: len(lowest)] == lowest
