"""Installs a program's libraries once, in pinned versions, and says how the program is started."""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from tests.interop.producers.programs import Program
from tests.interop.servers import CACHE, copy_libraries, install, made_once, require, run

HERE = Path(__file__).parent
_FOLDER = CACHE / "producers"


def command_of(program: Program) -> Sequence[str]:
    """Return the command that runs the program, after installing what it needs.

    Raises `MissingToolError`.
    """
    _FOLDER.mkdir(parents=True, exist_ok=True)
    return _BY_LANGUAGE[program.language](program)


def _python(program: Program) -> Sequence[str]:
    of = " ".join([sys.version, *program.requirements])
    home = _FOLDER / f"python-{zlib.crc32(of.encode()):08x}"
    python = str(home / "bin" / "python")
    with made_once(home, of=of) as is_old:
        if is_old:
            run(sys.executable, "-m", "venv", str(home))
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run(*pip, *program.requirements)
    # Isolated: a program has the name of its library, which its own folder would hide.
    return [python, "-I", str(HERE / "python" / program.source)]


def _node(program: Program) -> Sequence[str]:
    require("Node.js 18 or newer is needed here: install it", "node", "npm")
    install(())
    home = _FOLDER / "node"  # Node.js looks for libraries in the folders above a program
    shutil.copytree(HERE / "node", home, dirs_exist_ok=True)
    return ["node", "--no-warnings", str(home / program.source)]


def _go(program: Program) -> Sequence[str]:
    require("Go is needed here: install it", "go")
    source = HERE / "go" / program.source
    built = _FOLDER / f"go-{program.source}"
    with made_once(built, *sorted(source.iterdir())) as is_old:
        if is_old:
            run("go", "build", "-o", str(built / "program"), ".", folder=source)
    return [str(built / "program")]


def _rust(program: Program) -> Sequence[str]:
    require("Rust is needed here: install it", "cargo")
    source = HERE / "rust" / program.source
    built = _FOLDER / f"rust-{program.source}"
    with made_once(built, source / "Cargo.lock", source / "src" / "main.rs") as is_old:
        if is_old:
            cargo = ["cargo", "build", "--quiet", "--locked"]
            run(*cargo, "--target-dir", str(built), folder=source)
    return [str(built / "debug" / program.source)]


def _java(program: Program) -> Sequence[str]:
    require("a JDK of Java 17 or newer and Maven are needed here: install both", "javac", "mvn")
    built = _FOLDER / f"java-{program.source}"
    source = HERE / "java" / program.source
    copy_libraries(built, source, "compile")
    quick = ["-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *quick, "-cp", f"{built / 'classes'}:{built / 'libraries'}/*", "Main"]


def make_certificate(folder: Path) -> Path:
    """Return a file with a key and its certificate for this machine, which clients are to trust.

    Raises `MissingToolError`.
    """
    require("OpenSSL makes the certificate of a server: install it", "openssl")
    key, certificate, both = (folder / name for name in ("key.pem", "ca.pem", "both.pem"))
    what = ["-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    run("openssl", "req", "-x509", *what, *names, "-keyout", str(key), "-out", str(certificate))
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    os.environ["AWS_CA_BUNDLE"] = str(certificate)
    return both


_BY_LANGUAGE = {"Python": _python, "Node": _node, "Go": _go, "Rust": _rust, "Java": _java}
