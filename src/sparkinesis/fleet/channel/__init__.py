"""The control channel between a fleet's driver and its workers: TLS, authentication, messages.

`control_server` is the driver's end, `driver_link` a worker's; both speak `channel`, over `tls`.
`pending` bounds the connections that have not authenticated.
"""
