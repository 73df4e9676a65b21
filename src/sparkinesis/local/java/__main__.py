"""Prints a JAVA_HOME on which Spark runs: ``python -m sparkinesis.local.java``."""

import os
import shutil
import sys
from pathlib import Path

from sparkinesis.local.java import use_java

use_java()
used = os.environ.get("JAVA_HOME") or Path(str(shutil.which("java"))).resolve().parents[1]
sys.stdout.write(f"{used}\n")
