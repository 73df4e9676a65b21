"""What AWS itself answers: ``make check-aws``, for some cents. See docs/checking-aws.md.

`run` makes what the `probes` need, measures and removes it; `findings` compares answers. Every new
assumption on the service needs a question in `probes`, with the answers that the code copes with
and the files that rest on them. ``make test`` runs the whole check on the local server, and never
calls AWS.
"""
