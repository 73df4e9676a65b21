"""Signs of life of threads, and the HTTP server that answers for health and metrics.

Loops give signs of life, by which `liveness` decides; a server at an `http_address` serves the
`pages`. `worker/reporting/health` adds what a worker sees of its table.
"""
