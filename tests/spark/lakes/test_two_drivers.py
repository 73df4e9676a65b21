"""A driver that was cut off wakes up after another one has committed its batch: it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.needed import need
from tests.spark.lakes.program import printed

ROWS = pa.table({"id": [1, 2], "plane": ["N14228", "N24211"]})


class Batch:
    """A batch of two rows. ``meanwhile`` is done before its rows are at the driver."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def toArrow(self) -> pa.Table:
        self._meanwhile()
        return ROWS


def driver(section: str, folder: Path) -> dict[str, Any]:
    """Run a printed program up to its query; return its names."""
    text = printed(section).replace("/tmp/lake", str(folder))
    names: dict[str, Any] = {}
    begin = text[: text.index("query = (")]
    exec(begin.replace("spark = SparkSession.builder.getOrCreate()", ""), names)
    return names


def test_deltalake_refuses_the_batch_of_the_other_driver(tmp_path: Path) -> None:
    need("deltalake")
    from deltalake import DeltaTable  # noqa: PLC0415 - of `make test-lakes`
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

    late, other = (driver("Delta Lake without JARs", tmp_path)["write"] for _ in range(2))
    with pytest.raises(DeltaError, match="exists"):
        late(Batch(meanwhile=lambda: other(Batch(), 0)), 0)
    late(Batch(), 0)  # as the replay does
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        late(Batch(meanwhile=lambda: other(Batch(), 1)), 1)
    late(Batch(), 1)  # as the replay does
    table = DeltaTable(tmp_path / "flights")
    assert table.to_pyarrow_table().num_rows == 2 * ROWS.num_rows
    table.restore(0)
    late(Batch(), 1)
    assert DeltaTable(tmp_path / "flights").to_pyarrow_table().num_rows == ROWS.num_rows, (
        "a replay is dropped after a restore, as the page says"
    )


class Catalog:
    """A catalog. ``meanwhile`` is done when the table has been loaded from it."""

    def __init__(self, real: Any, meanwhile: Callable[[], object]) -> None:
        self._real = real
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_table_if_not_exists(self, *args: Any, **named: Any) -> Any:
        table = self._real.create_table_if_not_exists(*args, **named)
        self._meanwhile()
        return table


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    need("pyiceberg", "sqlalchemy")
    late, other = driver("Iceberg", tmp_path), driver("Iceberg", tmp_path)
    yield late, other
    other["catalog"].close()


@pytest.mark.parametrize("is_old", [False, True], ids=["new table", "table with repeats"])
def test_pyiceberg_refuses_the_batch_of_the_other_driver(
    is_old: bool, drivers: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - of `make test-lakes`

    late, other = drivers
    catalog = late["catalog"]
    if is_old:
        catalog.create_namespace("airports")
        catalog.create_table("airports.flights", ROWS.schema)
        exec(printed("Iceberg", 1), late)
    other["write"](Batch(), 0)
    late["catalog"] = Catalog(catalog, lambda: other["write"](Batch(), 1))
    with pytest.raises(CommitFailedException):
        late["write"](Batch(), 1)
    late["catalog"] = catalog
    late["write"](Batch(), 1)  # as the replay does
    table = catalog.load_table("airports.flights")
    assert table.scan().to_arrow().num_rows == 2 * ROWS.num_rows
    catalog.close()
