"""`sparkinesis doctor`: finds what keeps an application from running, by asking the services.

`examination` has the checks in their order: of the machine, of the streams (`service`), of what
producers do to their records (`record_checks`), and of the application (`application_checks`).
`judge` says what the facts mean, as findings; it is pure. An application that consumes a queue has
checks of its own (`queue_checks`).
"""
