"""What deploy/ holds: alerts, dashboard, policies, images. Some tests need Prometheus' promtool."""
