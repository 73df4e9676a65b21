"""The fetching of one shard: where a fetcher begins, and whether one may run."""

from __future__ import annotations

import threading

from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.position import Position
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest, OpenRetrieval
from sparkinesis.worker.retrieval.step_pool import Work
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage


class ShardFetching:
    """The fetchers of one shard, one after the other.

    For the thread of the shard's consumer, unless a method says that it is for any.
    """

    def __init__(
        self,
        shard_id: str,
        settings: ConsumerSettings,
        open_fetcher: OpenRetrieval,
        taker: Work,
        *,
        mark: StreamMark | None = None,
    ) -> None:
        """``taker``: the work that is woken when a page can be taken.

        ``mark``: the application's only stream, as the lease names it.
        """
        self.shard_id = shard_id
        self.memory = settings.memory.account()
        """Counts the pages that are fetched ahead."""
        self.paused_since: float | None = None
        """The time of `pause`, by the worker's clock; None after `resume`. For any thread."""
        self._settings = settings
        self._open_fetcher = open_fetcher
        self._taker = taker
        self._mark = mark
        self._lock = threading.Lock()
        self._is_ended = False
        self._fetcher: FetchAhead | None = None
        self._is_confirmed = False
        """True once this fetcher has a record, and the stream was still the same then."""
        self._heard_at: float | None = None
        """The time of the last page or, before the first one, of the attempt to read."""

    def fetcher(self, start: Position, *, inclusive: bool) -> FetchAhead | None:
        """Return the fetcher that runs, or a new one that begins at ``start``.

        Returns None while paused, and once ended.
        """
        with self._lock:
            if self._is_ended or self.paused_since is not None:
                return None
            if self._fetcher is None:
                self._is_confirmed = False
                self._fetcher = self._open_fetcher(
                    FetchRequest(
                        self.shard_id,
                        start,
                        inclusive=inclusive,
                        memory=self.memory,
                        taker=self._taker,
                        pool=self._settings.fetchers,
                        announce_silence=self._settings.options.call_even_for_empty_batches,
                    )
                )
            return self._fetcher

    def expect_page(self) -> None:
        """Note that the shard is to be read from now on, even if nothing of it is read yet."""
        if self._heard_at is None:
            self._heard_at = self._settings.clock()

    def require_same_stream(self, page: FetchedPage) -> None:
        """Raise `StreamNotFoundError` if the first records are those of a later stream of the name.

        Only an iterator that was made by the stream's name may lead there: its pages lead no
        further. Of an application's only stream, the records would be read again once its leases
        are made anew: that is cheaper than a call for each shard that begins.
        """
        if (page.records or page.at_shard_end) and not self._is_confirmed:
            self._settings.require_same_stream(page.fetched_at, None)
            self._is_confirmed = True

    def require_same_stream_now(self) -> None:
        """Raise `StreamNotFoundError` if the shard belongs to a later stream of the name."""
        self._settings.require_same_stream(self._settings.clock(), self._mark)

    def stop(self) -> None:
        """Stop the fetcher, until another one is asked for. Its pages are fetched again."""
        if self._fetcher is not None:
            self._heard_at = self.heard_at
            self._fetcher.stop()
            self._fetcher = None

    def end(self) -> None:
        """Stop fetching permanently, and release the shard at once. For any thread.

        The shard's next reader may have to wait until this connection is closed.
        """
        with self._lock:
            self._is_ended = True
            fetcher = self._fetcher
        if fetcher is not None:
            fetcher.stop()

    def pause(self) -> None:
        """Stop fetching, with an open subscription too, until `resume`. For any thread."""
        with self._lock:
            if self.paused_since is None:
                self.paused_since = self._settings.clock()
            fetcher = self._fetcher
        if fetcher is not None:
            fetcher.stop()

    def resume(self) -> None:
        """Permit a fetcher again. For any thread."""
        with self._lock:
            self.paused_since = None

    # --- for any thread

    @property
    def is_paused(self) -> bool:
        """True from `pause` to `resume`."""
        return self.paused_since is not None

    @property
    def was_interrupted(self) -> bool:
        """True if the fetcher was stopped by `pause` or `end`, however short the pause was."""
        fetcher = self._fetcher
        return fetcher is not None and fetcher.waiting.is_stopped

    @property
    def heard_at(self) -> float | None:
        """The time since when no page has come; None: the shard is not to be read.

        By the worker's clock.
        """
        fetcher = self._fetcher
        times = (self._heard_at, None if fetcher is None else fetcher.waiting.heard_at)
        return max((one for one in times if one is not None), default=None)

    @property
    def oldest_at(self) -> float | None:
        """The arrival of the first record that waits to be taken, by the worker's clock."""
        fetcher = self._fetcher
        return None if fetcher is None else fetcher.waiting.oldest_at
