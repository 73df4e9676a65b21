"""With a real Java KCL on the same lease table: ``make interop``. See docs/java-kcl.md.

The Java worker is built with Maven in .venv/interop. ``ARGS="--scenario 3 --record"`` writes the
rows that Java made to tests/fixtures, where tests/integration/lease/test_java_rows.py reads them.
``ARGS=ten-minutes`` watches in four applications how the leases are shared. ``make test`` tests
only that and the conclusions.
"""
