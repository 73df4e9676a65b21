"""The live page: a stream's shards, who reads them, and how far behind they are.

`sparkinesis ui APP --stream S` serves it for an application, `serve(fleet)` for a fleet. It needs
the extra ``ui``.
"""

from sparkinesis.ui.serving import LivePage, serve

__all__ = ["LivePage", "serve"]
