"""The control channel between a fleet's driver and its workers: TLS, authentication, messages.

`control_server` is the driver's end, `fleet/executor_worker` has a worker's; both speak `channel`,
over `channel_tls`. `entrance` accepts connections for the driver, and bounds those that have not
authenticated.
"""
