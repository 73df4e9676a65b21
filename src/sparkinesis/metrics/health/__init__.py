"""Signs of life of threads, and the HTTP server that answers for health and metrics.

Loops leave `signs`, `liveness` decides by them; `server` listens at an `address` and serves
`pages`. `worker/reporting/health` adds what a worker sees of its table.
"""
