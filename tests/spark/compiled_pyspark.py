"""Adds bytecode to the archives from which Spark's Python processes import PySpark.

Spark puts ``pyspark.zip`` first on the path of each planner and worker. The archive holds source
only, so each of these processes compiles PySpark at its start: a second of CPU. Run this module
once after PySpark is installed; a process of another Python version compiles the source as before.
"""

from __future__ import annotations

import compileall
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

import pyspark


def compile_archive(archive: Path) -> None:
    """Write the archive anew, at once and whole, with each module's bytecode beside its source."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        content = Path(folder, "content")
        with zipfile.ZipFile(archive) as old:
            old.extractall(content)
        compileall.compile_dir(
            content,
            quiet=2,
            legacy=True,  # beside the source: the only place where an import from an archive looks
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            stripdir=str(content),
            prependdir=str(archive),
        )
        new = Path(folder, archive.name)
        with zipfile.ZipFile(new, "w") as written:
            for path in sorted(content.rglob("*")):
                written.write(path, path.relative_to(content))
        new.replace(archive)


def main(stamp: str) -> None:
    """Compile the archives of the installed PySpark and note it by the stamp's time."""
    warnings.simplefilter("ignore", SyntaxWarning)  # PySpark's, in its own tests
    for archive in Path(pyspark.__file__).parent.glob("python/lib/*.zip"):
        compile_archive(archive)
    Path(stamp).touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
