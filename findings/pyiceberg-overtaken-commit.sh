#!/usr/bin/env bash
# pyiceberg repeats a commit that another writer has overtaken, so that both store the rows of one batch.
#
# Expected: as in 0.11.1, the second of two writers that loaded the same version of a table fails with
# CommitFailedException, so that a batch whose number is a property of the table is stored once.
# pyiceberg 0.12.0, seen on 2026-11-29: it rebases the commit onto the newer version and repeats it, up to four times, for
# whatever was to be appended: rows beside their batch's number, rows with snapshot_properties, and the rows that an
# upsert found to be new. A key that two writers upsert is in the table twice, and upsert says that it was inserted.
# With the table's property commit.retry.num-retries=0 the second writer fails, as before.
# Hurt: exactly-once writers by a number in the table's properties, and writers that rely on upsert for one row a key.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/two_writers.py" <<'PY'
import sys

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

folder = sys.argv[1]
rows = pa.table({"id": [1, 2]})


def catalog():
    return load_catalog("c", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=folder)


def batch(table):
    with table.transaction() as transaction:
        transaction.append(rows)
        transaction.set_properties({"batch": "5"})


def upsert(table):
    table.upsert(rows, join_cols=["id"])


def ids_after_two(name, write, properties):
    """Let two writers that have loaded the same version write, one after the other."""
    catalog().create_table(f"n.{name}", rows.schema, properties=properties)
    first, second = (catalog().load_table(f"n.{name}") for _ in range(2))
    write(first)
    try:
        write(second)
    except CommitFailedException:
        return "refused", sorted(catalog().load_table(f"n.{name}").scan().to_arrow()["id"].to_pylist())
    return "committed", sorted(catalog().load_table(f"n.{name}").scan().to_arrow()["id"].to_pylist())


catalog().create_namespace("n")
twice, once = ("committed", [1, 1, 2, 2]), ("refused", [1, 2])
no_repeats = {"commit.retry.num-retries": "0"}
for name, write, properties, in_0_12 in (
    ("batch", batch, {}, twice),
    ("upsert", upsert, {}, twice),
    ("batch_without_repeats", batch, no_repeats, once),
    ("upsert_without_repeats", upsert, no_repeats, once),
):
    seen = ids_after_two(name, write, properties)
    print(f"{pyiceberg.__version__} {name}: the second writer is {seen[0]}, ids {seen[1]}")
    assert seen == (in_0_12 if pyiceberg.__version__ == "0.12.0" else once), seen
PY
for version in 0.11.1 0.12.0; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet --disable-pip-version-check \
    "pyiceberg[sql-sqlite]==$version" pyarrow==22.0.0 SQLAlchemy==2.0.44
  mkdir "$work/lake-$version"
  "$work/$version/bin/python" "$work/two_writers.py" "$work/lake-$version" 2>/dev/null
done
