"""The benchmarks of sparkinesis: `make bench`."""
