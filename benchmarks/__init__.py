"""The benchmarks of sparkinesis: ``make bench``, or ``make bench ARGS=leases`` for one.

`__main__` lists them. A module ``NAME_side`` is the program that NAME measures. `report` prints,
`filled_server` and `shards_server` serve, `tls` lets them speak TLS, `cpu_seconds` and `proc_stat`
measure. `peers` compares with other libraries: ``make bench-peers``. docs/benchmarks.md has the
results.
"""
