"""What keeps an application from running, found by asking: `sparkinesis doctor`.

`examination` has the checks in their order; each asks a `service` and returns a `finding`:
`versions`, `network`, `credentials`, `streams`, `table`, `progress`, `workers`. `judge` says what
the facts mean. Pure: `finding`, `judge`.
"""
