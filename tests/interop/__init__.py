"""On servers that others wrote: ``make interop-emulators``. docs/other-servers.md has its results.

`scenarios` are played on `servers`, which are installed in .venv/interop by package.json, its lock
file and pom.xml; `judge` decides. ``make test`` tests only the conclusions. `kcl` is ``make
interop``, `queues` is ``make interop-queues``: our server, by clients that others wrote.
"""
