"""Where a worker stores records: Parquet files, and targets of dead letters.

``shard.sink(...)`` of a record processor returns a `ParquetSink`, whose rows are stored before each
checkpoint. `DeadLetterStream` and `DeadLetterDirectory` are targets of ``DeadLetter(...)``, for
records that cannot be processed; so is any function that takes `FailedRecords`.
"""

from sparkinesis.worker.dead_letters.targets import (
    DeadLetterDirectory,
    DeadLetterStream,
    FailedRecords,
)
from sparkinesis.worker.sink.sink import ParquetSink

__all__ = ["DeadLetterDirectory", "DeadLetterStream", "FailedRecords", "ParquetSink"]
