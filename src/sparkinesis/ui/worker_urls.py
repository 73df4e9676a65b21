"""Asks workers for their ``/status``, as ``--worker`` names them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit, urlunsplit

import urllib3

from sparkinesis.errors import OptionError
from sparkinesis.ui.reported import (
    Answer,
    Reported,
    WorkerSays,
    of_answers,
    read_status,
    shard_rates,
)

_TIMEOUT = urllib3.Timeout(connect=1.0, read=3.0)
_LONGEST = 32 * 1024 * 1024
"""Bytes of an answer: a worker of 10,000 shards has some 3 MB."""
_AT_ONCE = 16


def status_url(text: str) -> str:
    """Return the address of a worker's ``/status``. Raises `OptionError`.

    ``text``: the worker's address, with or without the path.
    """
    parts = urlsplit(text if "//" in text else f"//{text}", scheme="http")
    try:
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address or parts.path not in {"", "/", "/status"} or "@" in parts.netloc:
        raise OptionError(
            f"--worker is {text!r}; it takes the address at which a worker serves its status, such "
            "as http://127.0.0.1:9400."
        )
    return urlunsplit((parts.scheme, parts.netloc, "/status", "", ""))


class WorkerUrls:
    """Workers that are asked over HTTP. Not for several threads."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._urls = [status_url(url) for url in urls]
        self._clock = clock
        self._http = urllib3.PoolManager(maxsize=2, retries=False, timeout=_TIMEOUT)
        self._before: dict[str, tuple[float, dict[str, int]]] = {}

    def ask(self) -> Reported:
        """Ask all workers at once. Raises nothing: `Reported.messages` says who did not answer."""
        if not self._urls:
            return of_answers(())
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._urls)), "ask-worker") as pool:
            return of_answers(pool.map(self._ask, self._urls))

    def _ask(self, url: str) -> Answer:
        try:
            says = self._get(url)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            self._before.pop(url, None)
            return Answer(url, None, error=str(error))
        now, counts = self._clock(), {one.lease: one.records for one in says.shards}
        before = self._before.get(url)
        self._before[url] = now, counts
        rates = None if before is None else shard_rates(before[1], counts, now - before[0])
        return Answer(url, says, rates)

    def _get(self, url: str) -> WorkerSays:
        answer = self._http.request("GET", url, redirect=False, preload_content=False)
        try:
            if answer.status != 200:
                raise ValueError(f"it answers with the status {answer.status}")
            text = answer.read(_LONGEST + 1)
            if len(text) > _LONGEST:
                raise ValueError("its answer is too long")
        finally:
            answer.close()
        return read_status(text)
