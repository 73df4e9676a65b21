"""Whole applications, each in a folder; tests run them.

`flights` is the demo (`make demo`); `active_users`: who is active now, as a record processor, a
fleet and a query; `archive`: a stream into Parquet files; `exactly_once`: results and positions in
SQLite or Postgres; ``pipeline``: Spark's declarative pipelines; ``notebook.ipynb``: a live chart.
"""
