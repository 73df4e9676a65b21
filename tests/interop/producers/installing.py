"""Installs a program's libraries once, in pinned versions, and says how the program is started."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.producers.programs import Program
from tests.interop.servers import CACHE, MissingToolError, require

HERE = Path(__file__).parent
_FOLDER = CACHE / "producers"


class InstallError(Exception):
    """A program cannot be built here: the last line of what said so."""


def command_of(program: Program) -> Sequence[str]:
    """Return the command that runs the program, after installing what it needs.

    Raises `MissingToolError` and `InstallError`.
    """
    return _BY_LANGUAGE[program.language](program)


def _python(program: Program) -> Sequence[str]:
    key = " ".join([sys.version, *program.requirements])
    home = _FOLDER / f"python-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    python = home / "bin" / "python"
    if _is_new(home, key):
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *program.requirements])
        _keep(home, key)
    # Isolated: a program has the name of its library, which its own folder would hide.
    return [str(python), "-I", str(HERE / "python" / program.source)]


def _node(program: Program) -> Sequence[str]:
    require("Node.js 18 or newer is needed here: install it", "node", "npm")
    home = _FOLDER / "node"
    key = _digest(HERE / "node" / "package-lock.json")
    home.mkdir(parents=True, exist_ok=True)
    for source in (HERE / "node").iterdir():
        shutil.copy(source, home)
    if _is_new(home, key):
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run(["npm", "ci", *quiet], home)
        _keep(home, key)
    return ["node", "--no-warnings", str(home / program.source)]


def _go(program: Program) -> Sequence[str]:
    require("Go is needed here: install it", "go")
    source = HERE / "go" / program.source
    built = _FOLDER / f"go-{program.source}"
    key = _digest(*sorted(source.iterdir()))
    if _is_new(built, key):
        built.mkdir(parents=True, exist_ok=True)
        _run(["go", "build", "-o", str(built / "program"), "."], source)
        _keep(built, key)
    return [str(built / "program")]


def _rust(program: Program) -> Sequence[str]:
    require("Rust is needed here: install it", "cargo")
    source = HERE / "rust" / program.source
    built = _FOLDER / f"rust-{program.source}"
    key = _digest(source / "Cargo.lock", source / "src" / "main.rs")
    if _is_new(built, key):
        _run(["cargo", "build", "--quiet", "--locked", "--target-dir", str(built)], source)
        _keep(built, key)
    return [str(built / "debug" / program.source)]


def _java(program: Program) -> Sequence[str]:
    require("a JDK of Java 17 or newer and Maven are needed here: install both", "javac", "mvn")
    source = HERE / "java" / program.source
    built = _FOLDER / f"java-{program.source}"
    key = _digest(*sorted(source.iterdir()))
    if _is_new(built, key):
        shutil.rmtree(built, ignore_errors=True)
        where = [f"-Doutput={built}", f"-DoutputDirectory={built / 'libraries'}"]
        pom = ["-f", str(source / "pom.xml")]
        _run(["mvn", "-q", "-B", *pom, "compile", "dependency:copy-dependencies", *where])
        _keep(built, key)
    quick = ["-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *quick, "-cp", f"{built / 'classes'}:{built / 'libraries'}/*", "Main"]


def make_certificate(folder: Path) -> Path:
    """Return a file with a key and its certificate for this machine, which clients are to trust.

    Raises `MissingToolError` and `InstallError`.
    """
    require("OpenSSL makes the certificate of a server: install it", "openssl")
    key, certificate, both = (folder / name for name in ("key.pem", "ca.pem", "both.pem"))
    what = ["-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    _run(["openssl", "req", "-x509", *what, *names, "-keyout", str(key), "-out", str(certificate)])
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    os.environ["AWS_CA_BUNDLE"] = str(certificate)
    return both


_BY_LANGUAGE = {"Python": _python, "Node": _node, "Go": _go, "Rust": _rust, "Java": _java}


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()


def _is_new(home: Path, key: str) -> bool:
    marker = home / "installed"
    return not marker.exists() or marker.read_text("utf-8") != key


def _keep(home: Path, key: str) -> None:
    (home / "installed").write_text(key, "utf-8")


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it gave no reason").splitlines()
        raise InstallError(f"{' '.join(command[:4])} failed: {said[-1]}")


__all__ = ["InstallError", "MissingToolError", "command_of", "make_certificate"]
