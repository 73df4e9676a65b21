"""What the driver tells of a fleet to whoever watches it: health, and metrics. Pure."""
