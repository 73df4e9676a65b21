"""The decisions about leases, as pure functions: which to create, take, steal, reset and delete."""
