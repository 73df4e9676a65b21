"""The Parquet files that a query has written, and whether they are whole."""

from __future__ import annotations

import os
from pathlib import Path

from tests.spark.lakes.program import Checkpoint


def is_whole(file: Path) -> bool:
    """Whether a Parquet file is written to its end."""
    try:
        with file.open("rb") as opened:
            opened.seek(-4, os.SEEK_END)
            return opened.read() == b"PAR1"
    except OSError:  # it is shorter, or gone
        return False


def new_files(folder: Path, checkpoint: Checkpoint) -> list[Path]:
    """The whole files that a query has written since its newest batch was planned."""
    began = checkpoint.planned_at()
    files = folder.glob("*.parquet")
    return [each for each in files if each.stat().st_mtime_ns > began and is_whole(each)]
