"""The plan of a sink's files: the schema that rows must fit, and their directories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkinesis.errors import OptionError, SchemaMismatchError

Rows: TypeAlias = "pa.RecordBatch | pa.Table | Sequence[Mapping[str, object]]"

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows whose value is null or empty, as in Spark and Hive."""

LONGEST_NAME = 255
"""The most bytes of a file's or directory's name on nearly all file systems."""

_ESCAPED = {*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{[]^"}
"""The characters of Spark's ``ExternalCatalogUtils.escapePathName``, and NUL."""


@dataclass(frozen=True)
class SinkPlan:
    """The settings of a sink, except its storage. Invalid settings raise `OptionError`."""

    schema: pa.Schema
    partition_by: Sequence[str]
    max_bytes: int
    max_age: float
    """Seconds."""
    compression: str | None

    def __post_init__(self) -> None:
        self._check_schema()
        self._check_partitions()
        if not _is_number(self.max_bytes) or self.max_bytes < 1:
            raise OptionError(f"max_bytes is {self.max_bytes!r}; it must be a number, at least 1.")
        if not _is_number(self.max_age) or not self.max_age >= 0:
            raise OptionError(f"max_age is {self.max_age!r}; it must be seconds, at least 0.")
        try:  # a file without rows: a schema that fails here would fail in each file
            empty = self.file_schema.empty_table()
            pq.write_table(empty, pa.BufferOutputStream(), compression=self.compression)
        except (pa.ArrowException, TypeError, AttributeError) as error:
            raise OptionError(
                f"Parquet files of this schema with compression {self.compression!r} cannot be "
                f"written: {error}."
            ) from error

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in a file, without the partition columns."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def fit(self, rows: Rows) -> pa.Table:
        """Return ``rows`` as a table of the schema.

        A key that a mapping lacks becomes null. Raises `SchemaMismatchError` for a missing Arrow
        column, a column that is not in the schema, and a value that cannot be cast without loss.
        """
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            self._check_names(rows.schema.names)
            if missing := [name for name in self.schema.names if name not in rows.schema.names]:
                raise SchemaMismatchError(
                    f"The rows have no column {missing[0]!r}, which is in the sink's schema. "
                    "Append the column, with nulls if there are no values."
                )
            columns = [_cast(rows.column(field.name), field) for field in self.schema]
        else:
            mappings = _mappings(rows)
            self._check_names(list(dict.fromkeys(name for row in mappings for name in row)))
            columns = [
                _convert([r.get(field.name) for r in mappings], field) for field in self.schema
            ]
        for field, column in zip(self.schema, columns, strict=True):
            if column.null_count and not field.nullable:
                raise SchemaMismatchError(
                    f"Column {field.name!r} has {column.null_count} nulls (or rows without it), "
                    "and is not nullable in the sink's schema."
                )
        for field, column in zip(self.schema, columns, strict=True):
            _check_storable(column, field)
        return pa.Table.from_arrays(columns, schema=self.schema)

    def split(self, table: pa.Table) -> list[tuple[str, pa.Table]]:
        """Return the rows of each directory (relative; "" without partitions), in their order.

        Creates no Python object per row. Raises `SchemaMismatchError` for a value that makes the
        name of a directory too long.
        """
        if not len(table):
            return []
        if not self.partition_by:
            return [("", table)]
        code = pa.repeat(pa.scalar(0, pa.int64()), len(table))
        levels = []
        for name in self.partition_by:
            column = table.column(name).combine_chunks()
            level = pc.dictionary_encode(column, null_encoding="encode")
            levels.append((name, level.indices, level.dictionary.cast(pa.string())))
            code = pc.add(pc.multiply(code, len(level.dictionary)), level.indices)
            # Encode again after each column: the product of three cardinalities may overflow.
            code = pc.dictionary_encode(code).indices.cast(pa.int64())
        order = pc.sort_indices(code)
        rows = table.drop_columns([*self.partition_by]).take(order)
        found, start = [], 0
        for count in pc.value_counts(code.take(order)).field("counts").to_pylist():
            first = order[start].as_py()
            names = [
                directory(name, texts[at[first].as_py()].as_py()) for name, at, texts in levels
            ]
            found.append(("/".join(names), rows.slice(start, count)))
            start += count
        return found

    def join(self, tables: Sequence[pa.Table], labels: Mapping[str, str]) -> pa.Table:
        """Return the rows of a directory's tables, with the schema's metadata and ``labels``."""
        metadata = {**(self.schema.metadata or {}), **labels}
        return pa.concat_tables(tables).replace_schema_metadata(metadata)

    def _check_schema(self) -> None:
        if not isinstance(self.schema, pa.Schema):
            raise OptionError(
                f"schema is of type {type(self.schema).__name__}; it must be a pyarrow.Schema."
            )
        names = self.schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise OptionError(f"The schema has two columns {twice[0]!r}; names must differ.")

    def _check_partitions(self) -> None:
        if isinstance(self.partition_by, str):
            raise OptionError(
                f"partition_by is the string {self.partition_by!r}; give a list of columns, such "
                f"as [{self.partition_by!r}]."
            )
        if not isinstance(self.partition_by, Sequence):
            raise OptionError(f"partition_by is {self.partition_by!r}; give a list of columns.")
        for name in self.partition_by:
            if name not in self.schema.names:
                raise OptionError(
                    f"partition_by names {name!r}, which is not in the schema; its columns are "
                    f"{', '.join(self.schema.names)}."
                )
            kind = self.schema.field(name).type
            is_fit = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, _is_string)
            if not any(test(kind) for test in is_fit):
                raise OptionError(
                    f"partition_by names {name!r}, which is of type {kind}; a directory's name can "
                    "be an integer, a boolean, a string or a date."
                )
            if name.startswith((".", "_")):
                raise OptionError(
                    f"partition_by names {name!r}: some readers skip directories of such a name as "
                    "hidden. Rename the column."
                )
        if len(set(self.partition_by)) < len(self.partition_by):
            raise OptionError("partition_by names a column twice.")
        if not len(self.file_schema):
            raise OptionError("The schema has no column that is not in partition_by.")

    def _check_names(self, names: Sequence[str]) -> None:
        if unknown := [name for name in names if name not in self.schema.names]:
            raise SchemaMismatchError(
                f"The rows have a column {unknown[0]!r}, which is not in the sink's schema; its "
                f"columns are {', '.join(self.schema.names)}."
            )
        if len(set(names)) < len(names):
            raise SchemaMismatchError("The rows have two columns of the same name.")


def directory(name: str, value: str | None) -> str:
    """Return the directory of a column's value; raise `SchemaMismatchError` if it is too long."""
    made = f"{_escape(name)}={_escape(value) if value else NULL}"
    if len(made.encode()) > LONGEST_NAME:
        raise SchemaMismatchError(
            f"Column {name!r} has a value of {len(value or '')} characters, {(value or '')[:40]!r}"
            f"...: too long for the name of a directory, which has {LONGEST_NAME} bytes at most."
        )
    return made


def _escape(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _mappings(rows: object) -> Sequence[Mapping[str, object]]:
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return rows
    raise SchemaMismatchError(
        f"The rows are of type {type(rows).__name__}; give a pyarrow.RecordBatch, a pyarrow.Table, "
        "or a list of dicts."
    )


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} is of type {column.type}, and cannot be made {field.type} as "
            f"in the sink's schema: {error}"
        ) from error


def _check_storable(column: pa.ChunkedArray, field: pa.Field) -> None:
    """Raise `SchemaMismatchError` for values that Arrow accepts and Parquet refuses.

    These are nulls within nested values, and seconds out of range. Kept in memory, they would block
    every checkpoint.
    """
    is_of_seconds = pa.types.is_timestamp(field.type) and field.type.unit == "s"
    if not is_of_seconds and not pa.types.is_nested(field.type):
        return
    try:
        if is_of_seconds:
            # Parquet stores milliseconds. Older pyarrows, as 23.0, write other instants instead.
            column.cast(pa.timestamp("ms", field.type.tz))
            return
        table = pa.Table.from_arrays([column], schema=pa.schema([field]))
        pq.write_table(table, pa.BufferOutputStream(), compression=None)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} has a value that cannot be stored as {field.type}: {error}"
        ) from error


def _convert(values: list[object], field: pa.Field) -> pa.ChunkedArray:
    try:
        return pa.chunked_array([pa.array(values, field.type)], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        row = next((n for n, value in enumerate(values) if not _is_fit(value, field)), 0)
        raise SchemaMismatchError(
            f"Column {field.name!r} is {field.type} in the sink's schema, which the value of row "
            f"{row} cannot be made: {error}"
        ) from error


def _is_fit(value: object, field: pa.Field) -> bool:
    try:
        pa.array([value], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return False
    return True
