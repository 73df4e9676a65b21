"""Tables and live views on a terminal; knows nothing of leases and streams.

`view` is what is shown, `live` fits it and updates it in place; `printing` prints tables and lines,
and shortens names.
"""
