"""What a shell completes: names of applications, streams and profiles, asked for within a second.

Nothing is printed and nothing is written. On any failure, nothing is completed.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import typer

_PATIENCE = 1.0
"""Seconds for the answers to one press of the tab key."""
_MOST_PAGES = 10
_BREAKS = re.compile(r"[:=]+")
"""The signs that are words of their own to bash, as in ``http : //127.0.0.1 : 4566``."""
_BESIDE = ("-CoordinatorState", "-WorkerMetricStats")
"""The ends of the names of a KCL 3's tables beside its lease table."""


def application_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tables, which those of applications are."""
    endpoint = ctx.params.get("dynamodb_endpoint") or ctx.params.get("endpoint")
    tables = _asked(ctx, incomplete, "dynamodb", endpoint, ("list_tables", "TableNames"))
    return [name for name in tables if not name.endswith(_BESIDE)]


def stream_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of streams."""
    endpoint = ctx.params.get("endpoint")
    return _asked(ctx, incomplete, "kinesis", endpoint, ("list_streams", "StreamNames"))


def profile_names(incomplete: str) -> list[str]:
    """Return the names of the profiles in ~/.aws."""
    with suppress(Exception):
        import botocore.session  # noqa: PLC0415 - slow to import

        names = botocore.session.Session().available_profiles
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def _asked(
    ctx: typer.Context, incomplete: str, service: str, endpoint: str | None, call: tuple[str, str]
) -> list[str]:
    region, profile = ctx.params.get("region"), ctx.params.get("profile")
    with suppress(Exception):
        pages = _pages(service, profile, region, endpoint, call)
        names = _within(_PATIENCE, lambda: pages)
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def _pages(
    service: str,
    profile: str | None,
    region: str | None,
    endpoint: str | None,
    call: tuple[str, str],
) -> Iterator[Sequence[str]]:
    from sparkinesis.stream.calls.session import client_of, open_session  # noqa: PLC0415
    from sparkinesis.stream.credentials import CredentialSource  # noqa: PLC0415 - slow to import

    session = open_session(CredentialSource(profile), region, endpoint)
    if "mfa_serial" in session.get_scoped_config():
        return  # botocore would ask for a code on the terminal
    client = client_of(session, service, endpoint, read_timeout=_PATIENCE)
    operation, field = call
    answers: Iterable[Any] = client.get_paginator(operation).paginate()
    for answer, _ in zip(answers, range(_MOST_PAGES), strict=False):
        yield answer[field]


def _within(seconds: float, pages: Callable[[], Iterable[Sequence[str]]]) -> list[str]:
    """Return what the pages hold that arrive within so many seconds."""
    names: list[str] = []

    def gather() -> None:
        with suppress(Exception):
            for page in pages():
                names.extend(page)

    thread = threading.Thread(target=gather, daemon=True)  # an answer may never come
    thread.start()
    thread.join(seconds)
    return list(names)


def join_words_of_bash() -> None:
    """Put together the words of the command line that bash has split at colons and equal signs.

    Bash passes its words in the environment, and so does typer read them.
    """
    if "COMP_WORDS" in os.environ:
        words, at = os.environ["COMP_WORDS"].split("\n"), int(os.environ.get("COMP_CWORD", "0"))
        words, at = joined(words, at)
        os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(at)}


def joined(words: Sequence[str], at: int) -> tuple[list[str], int]:
    """Return the words before bash's split, and the place of the one that had been ``at``."""
    found: list[str] = []
    place = at
    continues = False
    for number, word in enumerate(words):
        is_break = bool(_BREAKS.fullmatch(word))
        if found and (is_break or continues):
            found[-1] += word
        else:
            found.append(word)
        continues = is_break
        if number == at:
            place = len(found) - 1
    return found, place if at < len(words) else at - len(words) + len(found)
