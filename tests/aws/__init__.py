"""What AWS itself answers: ``make check-aws``, for some cents. See docs/checking-aws.md.

`__main__` makes what the `probes` need, has them measure by the `bench`, prints their `answer`s,
and removes all of it. Every new assumption on the service needs an answer of a probe, with the
values that the code copes with and the files that rest on them. ``make test-more`` runs the whole
check on the local server, and never calls AWS.
"""
