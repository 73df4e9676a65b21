"""Calls without botocore's machinery: signed here, sent over kept connections, decoded by msgspec.

botocore prepares the first request of each kind, and finds the endpoint, the headers and the way to
sign. That request and every one after it is sent here, with its own body and signature.

`direct_client` sends, and asks for long pages in CBOR: `usual` knows the usual requests,
`by_botocore` has others made, and makes the calls that are left to botocore. `usual_errors` are
botocore's, made here. `signed_request` is what stays of a request, and signs each; `connection`
keeps connections, `http_answer` reads an answer or a subscription from one.
"""
