"""The live page: a stream's shards, who reads them, and how far behind they are.

`sparkinesis ui APP --stream S` serves it for an application, ``serve(fleet)`` for a fleet. It needs
the extra ``ui``.

`serving` starts it. `watcher` reads the application in a thread and makes each `look`, with what
workers report (`reported`). `columns` and `texts` make it ready to draw, `page` draws, `server`
serves; `orders` carries out an operator's orders.
"""

from sparkinesis.ui.serving import LivePage, serve

__all__ = ["LivePage", "serve"]
