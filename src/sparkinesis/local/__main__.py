"""The command `python -m sparkinesis.local`, an alias of `sparkinesis local`."""

from __future__ import annotations

import typer

from sparkinesis.local.command import local

if __name__ == "__main__":
    typer.run(local)
