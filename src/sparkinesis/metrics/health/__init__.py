"""Signs of life of threads, and the HTTP server that tells of health and metrics."""
