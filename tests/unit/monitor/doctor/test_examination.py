"""The versions of what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkinesis.monitor.doctor.examination import java


def java_home(folder: Path, says: str) -> str:
    (folder / "bin").mkdir()
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    command.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.2" 2022-01-18', 17),
        ('java version "1.8.0_391"', 8),
        ("no such thing", 0),
    ],
)
def test_java_tells_its_version(
    says: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, says))
    assert java() == version


def test_a_java_home_without_java_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() is None
