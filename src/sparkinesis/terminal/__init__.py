"""Tables and live views on a terminal; knows nothing of leases and streams.

`view` is what is shown, `layout` fits it, `live` updates it in place; `table` prints tables,
`names` shortens names.
"""
