"""Reads and decodes the service's answers: pages of records, and the events of subscriptions.

`decoding` makes pages, in order within each; `large_data` takes large records out first.
`event_stream` parses a subscription's frames, `listing` follows NextToken.
"""
