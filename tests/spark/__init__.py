"""Real Spark sessions, clusters and drivers that are killed; the programs of the README.

Spark's difficult cases are in `test_cluster` (a standalone cluster, a killed executor) and
`test_p2_no_gap_no_overlap` (batches that are killed and replayed). `lakes` is `make test-lakes`.
"""
