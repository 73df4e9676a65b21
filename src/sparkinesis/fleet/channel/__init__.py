"""The control channel between a fleet's driver and its workers: TLS, authentication, messages."""
