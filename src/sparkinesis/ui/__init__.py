"""The live page: a stream's shards, the workers that read them, and their lag.

`sparkinesis ui APP --stream S` serves it for an application, ``serve(fleet)`` for a fleet. It needs
the extra ``ui``.

`serving` starts it. `watcher` takes snapshots of the application in a thread, with what workers
report. `page_columns` and `texts` make them ready to draw, `browser_page` draws,
`page_server` serves; `orders` carries out an operator's orders.
"""

from sparkinesis.ui.serving import LivePage, serve

__all__ = ["LivePage", "serve"]
