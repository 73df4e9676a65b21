"""What keeps an application from running, found by asking: `sparkinesis doctor`.

`examination` has the checks in their order: of the `machine`, the `streams` and the `application`,
each by calls of a `service`. `judge` says what the facts mean, as findings; it is pure.
"""
