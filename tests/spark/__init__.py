"""Real Spark sessions, clusters and drivers that are killed; the programs of the README.

Spark's difficult cases are in `test_cluster` (a standalone cluster, a killed executor) and
`test_p1_determinism` (a batch that is read twice). `lakes` is `make test-lakes`.
"""
