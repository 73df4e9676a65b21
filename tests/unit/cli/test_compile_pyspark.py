"""`sparkinesis compile-pyspark` on installations of a few lines."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparkinesis.cli.compile_pyspark import archives, installed_spark
from tests.command import call

MODULES = {
    "pyspark/__init__.py": "from pyspark import worker\n",
    "pyspark/worker.py": "ANSWER = 42\n",
}
NO_MODULE = {"pyspark/python_packaging.txt": "no module\n"}

IMPORT = """
import json, pyspark, pyspark.worker
print(json.dumps([pyspark.worker.ANSWER, pyspark.__file__, pyspark.worker.__file__]))
"""


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    lib = tmp_path / "python" / "lib"
    lib.mkdir(parents=True)
    for name, module in (("pyspark.zip", "pyspark"), ("py4j-0.10.9.9-src.zip", "py4j")):
        with zipfile.ZipFile(lib / name, "w") as archive:
            for path, text in {**MODULES, **NO_MODULE}.items():
                archive.writestr(path.replace("pyspark", module), text.replace("pyspark", module))
    return tmp_path


def run(*arguments: object, code: int = 0) -> str:
    result = call("compile-pyspark", *map(str, arguments))
    assert result.returncode == code
    return result.stdout + result.stderr


def imported(archive: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        check=True,
    )
    answer, *files = json.loads(done.stdout)
    return answer, [file.removeprefix(f"{archive}/") for file in files]


def test_modules_are_imported_from_bytecode_until_it_is_removed(spark_home: Path) -> None:
    archive = spark_home / "python" / "lib" / "pyspark.zip"
    archive.chmod(0o640)
    before = sorted(zipfile.ZipFile(archive).namelist())
    assert imported(archive) == (42, ["pyspark/__init__.py", "pyspark/worker.py"])
    for _ in range(2):
        output = run("--spark-home", spark_home)
        assert f"Bytecode of 2 modules of Python 3.{sys.version_info.minor}." in output
        assert imported(archive) == (42, ["pyspark/__init__.pyc", "pyspark/worker.pyc"])
    assert set(before) < set(zipfile.ZipFile(archive).namelist()), "the source stays"
    assert archive.stat().st_mode & 0o777 == 0o640
    py4j = archive.with_name("py4j-0.10.9.9-src.zip")
    assert "py4j/worker.pyc" in zipfile.ZipFile(py4j).namelist()
    output = run("--undo", "--spark-home", spark_home)
    assert f"Bytecode of 2 modules removed from {archive}" in output
    files = [name for name in zipfile.ZipFile(archive).namelist() if not name.endswith("/")]
    assert sorted(files) == before
    assert imported(archive)[1] == ["pyspark/__init__.py", "pyspark/worker.py"]


def test_changed_source_is_compiled_anew(spark_home: Path) -> None:
    archive = spark_home / "python" / "lib" / "pyspark.zip"
    run("--spark-home", spark_home)
    with zipfile.ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist() if not name.endswith("/")}
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in files.items():
            new.writestr(
                name, content.replace(b"= 42", b"= 43") if name.endswith("py") else content
            )
    assert imported(archive)[0] == 42, "the old bytecode"
    run("--spark-home", spark_home)
    assert imported(archive)[0] == 43


def test_spark_is_found_by_the_environment_then_beside_pyspark(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command itself would rewrite the installation under test if the lookup were wrong.
    monkeypatch.setenv("SPARK_HOME", str(spark_home))
    assert installed_spark() == spark_home
    monkeypatch.delenv("SPARK_HOME")
    assert (installed_spark() / "python" / "lib" / "pyspark.zip") in archives(installed_spark())


def test_another_folder_is_refused(tmp_path: Path) -> None:
    output = run("--spark-home", tmp_path, code=1)
    assert f"{tmp_path} is no Spark installation: there is no file" in output
    assert not any(tmp_path.iterdir())


def test_a_damaged_archive_stays_as_it_is(spark_home: Path) -> None:
    archive = spark_home / "python" / "lib" / "pyspark.zip"
    archive.write_bytes(b"half of an archive")
    output = run("--spark-home", spark_home, code=1)
    assert f"{archive} is unchanged: " in output
    assert archive.read_bytes() == b"half of an archive"
    assert [path.name for path in archive.parent.iterdir() if path.is_dir()] == []
