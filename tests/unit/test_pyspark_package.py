"""The package by which Spark finds ``format("kinesis")``: its class, and what its import costs."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_sparkinesis
from pyspark_sparkinesis import DefaultSource
from sparkinesis.errors import OptionError
from sparkinesis.source.datasource import KinesisDataSource, source_named

OPTIONS = {"streamName": "flights", "region": "eu-west-1"}


def test_sparks_lookup_finds_a_source_that_makes_ours() -> None:
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == KinesisDataSource.name() == "kinesis"
    assert type(DefaultSource(options=OPTIONS)) is KinesisDataSource


def test_users_of_other_sources_import_nothing_of_sparkinesis() -> None:
    program = "import sys, pyspark_sparkinesis; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] == "sparkinesis"}
    assert loaded == set()


def test_an_old_installation_beside_a_new_one_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    DefaultSource(OPTIONS)
    assert caplog.messages == []
    package = Path(str(pyspark_sparkinesis.__file__))
    old = shutil.copytree(package.parent, tmp_path / package.parent.name) / package.name
    monkeypatch.setattr(pyspark_sparkinesis, "__file__", str(old))
    with caplog.at_level(logging.WARNING):
        DefaultSource(OPTIONS)
    (told,) = caplog.messages
    assert f"two installations of sparkinesis, {tmp_path} and {package.parents[1]}" in told


def test_another_name_is_one_word() -> None:
    assert source_named("kinesis") is KinesisDataSource
    other = source_named("sparkinesis")
    assert (other.name(), KinesisDataSource.name()) == ("sparkinesis", "kinesis")
    for wrong in ("", "my kinesis", "aws.kinesis", "2kinesis"):
        with pytest.raises(OptionError, match="cannot be that of a format"):
            source_named(wrong)
