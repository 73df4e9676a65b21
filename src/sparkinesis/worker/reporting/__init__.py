"""What a worker reports: its events, failures, measurements, gauges and health."""
