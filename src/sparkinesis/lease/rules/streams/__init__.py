"""Rules for the leases of several streams in one table."""
