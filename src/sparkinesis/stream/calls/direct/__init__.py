"""Calls without botocore's machinery: signed here, sent over kept connections, decoded by msgspec.

botocore prepares the first request of each kind, and finds the endpoint, the headers and the way to
sign. That request and every one after it is sent here, with its own body and signature.

`client` sends: `usual` knows the usual requests, `by_botocore` has others made, which are
`learned`; `signature` signs, `connection` keeps connections over `tls`, within `bounds`.
`understood` refuses an answer that makes no sense. `streamed_body` reads a subscription,
`pumped_body` one behind a proxy; `bounded_session` bounds botocore's own calls.
"""
