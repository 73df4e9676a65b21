"""Commands on streams and their records: `shards`, `tail`, `put` and `dead_letters`.

`shards` lists. `tail` prints what `stream/reading/following` reads, as `record_objects` writes it,
or what of it breaks an order (`order_check`).
`put` makes records of the lines of stdin. `dead_letters` lists dead letters, and puts them back
into the streams that `dead_letter_streams` chooses.
"""
