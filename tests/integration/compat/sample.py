"""The sample application of amazon_kclpy, out of its source distribution.

It cannot be installed for a test: building a wheel of it downloads a hundred Java archives.
`make test` puts the distribution, as it is, beside the installed packages.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

REQUIREMENT = "amazon-kclpy==3.2.0"
FOLDER = "amazon_kclpy-3.2.0"
SHA256 = "62e81cc84714c920fe6aa5d61837b298fe7e01f6326dcb564b12ab8e6c4aca4e"


def find_sdist(scratch: Path) -> Path:
    """Return the source distribution; download it to ``scratch`` if necessary."""
    for file in (Path(sys.prefix) / "sdists" / f"{FOLDER}.tar.gz", scratch / f"{FOLDER}.tar.gz"):
        if file.exists():
            break
    else:
        options = ["--quiet", "--no-deps", "--no-binary", "amazon-kclpy", "--dest", str(scratch)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, REQUIREMENT], check=True)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256
    return file


def read_sample(sdist: Path, name: str) -> str:
    with tarfile.open(sdist) as archive:
        member = archive.extractfile(f"{FOLDER}/samples/{name}")
        assert member is not None
        return member.read().decode()


def change_imports(program: str) -> str:
    """Return ``program`` with only its imports changed."""
    changed, count = re.subn(
        r"^(from|import) amazon_kclpy\b",
        r"\1 sparkinesis.compat.kclpy",
        program,
        flags=re.MULTILINE,
    )
    assert count == 2
    return changed
