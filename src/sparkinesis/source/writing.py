"""A write task on an executor: puts the rows that Spark passes as Arrow batches.

Checks the columns of a query that writes, and turns its Arrow batches into user records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from sparkinesis.errors import OptionError, RecordRefusedError
from sparkinesis.source.options.checked_options import WriteOptions
from sparkinesis.source.options.option_table import ROW_COLUMNS
from sparkinesis.source.row_columns import table_options
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.put_entry import MAX_KEY_LENGTH, random_key
from sparkinesis.stream.shard import MAX_HASH_KEY


def write_batches(
    options: WriteOptions,
    batches: Iterable[pa.RecordBatch],
    new_key: Callable[[], str] = random_key,
    retry: Backoff | None = None,
) -> None:
    """Put all rows, and return when every row is stored at least once. Runs on an executor.

    Raises `RecordRefusedError` for a row that cannot be a record, and the errors of `Putter`. By
    then rows of earlier Arrow batches may be stored; a retried task puts them again.
    """
    from sparkinesis.stream.putting import RETRY, Putter  # noqa: PLC0415 - with boto3

    with Putter(
        options.address,
        retry or RETRY,
        ordered=options.ordered,
        aggregate_size=options.aggregate_size,
    ) as putter:
        for batch in batches:
            name, most = options.address.name, options.max_record_size
            putter.put(user_records(batch, name, most, new_key))


COLUMNS = {
    "data": "BINARY or STRING",
    "partitionKey": "STRING",
    "explicitHashKey": "STRING",
}
FILLED = tuple(name for name in ROW_COLUMNS if name not in COLUMNS)
"""The columns of a read that Kinesis fills. A write may have all of them, without values, because
Spark adds the columns of a table that an INSERT does not name."""
_LARGEST_HASH_KEY = str(MAX_HASH_KEY)
_SHOWN = 80
_SHOWN_DATA = 40
"""The most bytes of a record's data that an error shows."""


def check_schema(schema: StructType, *, ordered: bool) -> None:
    """Raise `OptionError` if columns cannot be written; it names all of them."""
    known = {name.lower(): name for name in COLUMNS}
    fields = _written(schema)
    names = [known.get(field.name.lower()) for field in fields]
    problems = []
    if "data" not in names:
        problems.append("the column data is missing")
    for field, name in zip(fields, names, strict=True):
        kind = field.dataType.simpleString().upper()
        if name is None:
            problems.append(f"the column {field.name} is unknown")
        elif names.count(name) > 1:
            problems.append(f"the column {field.name} appears more than once")
        elif not isinstance(field.dataType, StringType) and not (
            name == "data" and isinstance(field.dataType, BinaryType)
        ):
            problems.append(f"the column {field.name} is {kind}, not {COLUMNS[name]}")
    if ordered and not problems and "partitionKey" not in names:
        problems.append("ordered=true needs the column partitionKey, which is missing")
    if problems:
        raise OptionError(
            f"The rows cannot be written to Kinesis: {'; '.join(problems)}. A write takes the "
            "column data (BINARY or STRING) and the optional columns partitionKey and "
            "explicitHashKey (STRING). Select and cast them before the write, for example "
            'selectExpr("id AS partitionKey", "to_json(struct(*)) AS data").'
        )


def _written(schema: StructType) -> list[StructField]:
    """Return the columns of a write; of those of a table, without the ones that Kinesis fills."""
    filled = {name.lower() for name in FILLED}
    others = [field for field in schema.fields if field.name.lower() not in filled]
    is_whole = len(others) == len(COLUMNS) and len(schema.fields) == len(ROW_COLUMNS)
    is_table = is_whole or bool(table_options(schema))
    return others if is_table else schema.fields


def user_records(
    batch: pa.RecordBatch, stream: str, max_size: int, random_key: Callable[[], str]
) -> Iterator[OutgoingRecord]:
    """Return the user records of a batch, in order; ``random_key`` makes missing partition keys.

    Checks all rows first, so that an error is raised before any record is put. ``max_size`` is the
    largest size in bytes of data and partition key together. Raises `RecordRefusedError`.
    """
    columns = dict(zip(map(str.lower, batch.schema.names), batch.columns, strict=True))
    _check_filled(columns)
    none = pa.nulls(batch.num_rows, pa.string())
    data = columns["data"].cast(pa.binary())
    given_keys = keys = columns.get("partitionkey", none).cast(pa.string())
    hash_keys = columns.get("explicithashkey", none).cast(pa.string())
    if keys.null_count:
        drawn = pa.array([random_key() for _ in range(keys.null_count)], pa.string())
        keys = pc.replace_with_mask(keys, keys.is_null(), drawn)
    for column, name in ((keys, "partitionKey"), (hash_keys, "explicitHashKey")):
        _check_text(column, name, stream)
    _check(data, keys, hash_keys, max_size, _Names(stream, given_keys, data))
    return zip(keys.to_pylist(), hash_keys.to_pylist(), data.to_pylist(), strict=True)


def _check_filled(columns: dict[str, pa.Array]) -> None:
    """Raise `RecordRefusedError` for a value that the record would not keep."""
    for name in FILLED:
        column = columns.get(name.lower())
        if column is not None and column.null_count < len(column):
            value = pc.drop_null(column)[0].as_py()
            raise RecordRefusedError(
                f"A row to put has {str(value)[:_SHOWN]!r} in the column {name}, which Kinesis "
                "itself fills for each new record. Write only partitionKey, data and "
                "explicitHashKey: name them in the INSERT and in its SELECT, or select them before "
                "the write. No record of its Arrow batch was put."
            )


def _check_text(column: pa.Array, name: str, stream: str) -> None:
    """Raise `RecordRefusedError` if a STRING is not UTF-8; it may be cast from any BINARY."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.view(pa.binary()).to_pylist()
        shown = next(text[:_SHOWN] for text in raw if text and not _is_text(text))
        raise RecordRefusedError(
            f"A record cannot be put on stream {stream!r}: its {name} begins with {shown!r}, which "
            "is not valid UTF-8, which Kinesis requires. If it was cast from BINARY, use hex() or "
            "base64() instead. No record of its Arrow batch was put."
        ) from None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of rows in errors."""

    stream: str
    given_keys: pa.Array
    """The partition keys of the rows; null where one is drawn: a random key identifies no row."""
    data: pa.Array

    def of(self, row: int) -> str:
        key = self.given_keys[row].as_py()
        if key is not None:
            shown = repr(key[:_SHOWN]) + ("..." if len(key) > _SHOWN else "")
            return f"The record with partition key {shown}"
        data = self.data[row].as_py()
        begins = f", whose data begins with {_shown_data(data)}" if data else ""
        count = f"row {row + 1:,} of the {len(self.data):,} of its Arrow batch"
        return f"The record without a partition key ({count}{begins})"


def _shown_data(data: bytes) -> str:
    begin = data[:_SHOWN_DATA]
    try:
        return repr(begin.decode())
    except UnicodeDecodeError as error:
        # The cut may be within a character.
        is_cut = len(data) > _SHOWN_DATA and error.start > _SHOWN_DATA - 4
        return repr(begin[: error.start].decode()) if is_cut else repr(begin)


def _check(data: pa.Array, keys: pa.Array, hash_keys: pa.Array, limit: int, names: _Names) -> None:
    def refuse(bad: pa.Array, why: Callable[[int], str]) -> None:
        row = pc.index(pc.fill_null(bad, False), True).as_py()
        if row >= 0:
            raise RecordRefusedError(
                f"{names.of(row)} cannot be put on stream {names.stream!r}: {why(row)} No record "
                "of its Arrow batch was put."
            )

    lengths = pc.utf8_length(keys)
    refuse(
        pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MAX_KEY_LENGTH)),
        lambda row: (
            f"the key has {lengths[row]} characters, but Kinesis takes 1 to {MAX_KEY_LENGTH}."
        ),
    )
    refuse(
        data.is_null(),
        lambda _: (
            "its data is null. Filter out rows with null data, or replace null by empty data."
        ),
    )
    sizes = pc.add(pc.binary_length(data), pc.binary_length(keys))
    refuse(
        pc.greater(sizes, limit),
        lambda row: (
            f"its data and key have {sizes[row].as_py():,} bytes, but the limit is {limit:,}. Make "
            "the data smaller, for example by compression. If the stream's maximum record size is "
            "larger, set the option maxRecordSize to that size."
        ),
    )
    digits = pc.match_substring_regex(hash_keys, r"^(0|[1-9][0-9]{0,38})$")
    too_large = pc.and_(
        pc.equal(pc.utf8_length(hash_keys), len(_LARGEST_HASH_KEY)),
        pc.greater(hash_keys, _LARGEST_HASH_KEY),
    )
    refuse(
        pc.or_(pc.invert(digits), too_large),
        lambda row: (
            f"its explicitHashKey is {hash_keys[row].as_py()[:_SHOWN]!r}, but Kinesis takes a "
            "whole number in decimal from 0 to 2**128 - 1, without leading zeros."
        ),
    )
