"""A write task on an executor: puts the rows that Spark passes as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from sparkinesis.source.options.write_options import WriteOptions
from sparkinesis.source.writing.rows import user_records
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.put_entry import random_key
from sparkinesis.stream.putting.putter import RETRY, Putter


def write_batches(
    options: WriteOptions,
    batches: Iterable[pa.RecordBatch],
    new_key: Callable[[], str] = random_key,
    retry: Retry = RETRY,
) -> None:
    """Put all rows, and return when every row is stored at least once. Runs on an executor.

    Raises `RecordRefusedError` for a row that cannot be a record, and the errors of `Putter`. By
    then rows of earlier Arrow batches may be stored; a retried task puts them again.
    """
    with Putter(
        options.address,
        retry,
        ordered=options.ordered,
        aggregate_size=options.aggregate_size,
    ) as putter:
        for batch in batches:
            name, most = options.address.name, options.max_record_size
            putter.put(user_records(batch, name, most, new_key))
