"""Reads and decodes the service's answers: pages of records, and the events of subscriptions.

`guards` refuses answers that are too late, too long, in another form, or without end. `decoding`
makes pages and events, in order within each; `cbor` reads pages that are no JSON.
"""
