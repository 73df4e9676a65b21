"""Workers, leases and the local server, over real HTTP. The folders are those of the package."""
