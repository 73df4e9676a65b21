"""Tables and live views on a terminal; knows nothing of leases and streams."""
