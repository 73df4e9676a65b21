"""A real Prometheus watches workers, a fleet and a query: ``make test-prometheus``."""
