"""Reads a directory of Parquet files like an independent reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest


def visible_files(folder: Path) -> list[str]:
    """Relative to ``folder``; by Spark's rule, without those in or of hidden names."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [str(file) for file in files if not any(_is_hidden(part) for part in file.parts)]


def visible_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of all files; raises if one is not whole."""
    return [row for file in visible_files(folder) for row in rows_of(folder / file)]


def rows_of(file: Path) -> list[dict[str, Any]]:
    """A file's rows; raises if it is not whole."""
    rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
    return rows


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def note_syncs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[tuple[int, int]]:
    """Return a list that grows: the inode of what is synced, and how many files are seen then."""
    synced: list[tuple[int, int]] = []

    def note(opened: int) -> None:
        sync(opened)
        synced.append((os.fstat(opened).st_ino, len(visible_files(folder))))

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", note)
    return synced
