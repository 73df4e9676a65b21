"""`python -m sparkinesis.local`: the same as `sparkinesis local`."""

from __future__ import annotations

import typer

from sparkinesis.local.command import local

if __name__ == "__main__":
    typer.run(local)
