"""`sparkinesis compile-pyspark`: adds bytecode to the archives that Spark's Pythons import.

Spark puts ``pyspark.zip`` first on the path of each of its Python processes. The archive holds
source only, and Python stores no bytecode in archives, so each process compiles PySpark anew.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import platform
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Annotated

import typer

from sparkinesis.cli.command_options import errors_in_one_line
from sparkinesis.errors import OptionError

_BYTECODE = ".pyc"


@errors_in_one_line("compile-pyspark")
def compile_pyspark(
    spark_home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder of a Spark installation. Default: the environment variable "
            "SPARK_HOME, else the PySpark of this Python.",
        ),
    ] = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the bytecode again.")] = False,
) -> None:
    """Make Spark's Python processes start faster: add bytecode to Spark's pyspark.zip, in place.

    Run this with the Python that Spark's workers run, while no Spark of this installation runs:
    as a step of an image's build, for example. Other versions of Python go on as before.
    """
    for archive in archives(spark_home or installed_spark()):
        count = rewrite(archive, with_bytecode=not undo)
        done = "removed from" if undo else f"of Python {platform.python_version()} added to"
        typer.echo(f"Bytecode of {count} modules {done} {archive}")


def installed_spark() -> Path:
    """Return the folder of the Spark that a program of this Python runs. Raises `OptionError`."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise OptionError(
            "this Python has no PySpark, and the environment variable SPARK_HOME is not set. Name "
            "the folder of the Spark installation by --spark-home."
        )
    return Path(found.origin).parent


def archives(spark_home: Path) -> list[Path]:
    """Return the archives of an installation, py4j's included. Raises `OptionError`."""
    folder = spark_home / "python" / "lib"
    if not (folder / "pyspark.zip").is_file():
        raise OptionError(
            f"{spark_home} is no Spark installation: there is no file {folder / 'pyspark.zip'}. "
            "Name the installation's folder by --spark-home."
        )
    return sorted(folder.glob("*.zip"))


def rewrite(archive: Path, *, with_bytecode: bool) -> int:
    """Write an archive anew, at once and whole; return the number of modules concerned.

    Raises `OptionError` if the archive cannot be written; the archive is then unchanged.
    """
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            content, new = Path(folder, "content"), Path(folder, archive.name)
            with zipfile.ZipFile(archive) as old:
                modules = [name for name in old.namelist() if name.endswith(_BYTECODE)]
                old.extractall(content, [n for n in old.namelist() if n not in modules])
            if with_bytecode:
                _compile(content, archive)
                modules = [str(path) for path in content.rglob(f"*{_BYTECODE}")]
            with zipfile.ZipFile(new, "w") as written:
                for path in sorted(content.rglob("*")):
                    written.write(path, path.relative_to(content))
            shutil.copymode(archive, new)
            new.replace(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise OptionError(
            f"{archive} is unchanged: {error}. Run the command as the owner of a whole Spark "
            "installation, or as a step of an image's build."
        ) from None
    return len(modules)


def _compile(content: Path, archive: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # PySpark's, in its own tests
        compileall.compile_dir(
            content,
            quiet=2,
            legacy=True,  # beside the source: the only place where an import from an archive looks
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            stripdir=str(content),
            prependdir=str(archive),
        )
