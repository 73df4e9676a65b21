"""Calls without botocore's machinery: signed here, sent over kept connections, decoded by msgspec.

botocore prepares the first request of each kind, and finds the endpoint, the headers and the way to
sign. That request and every one after it is sent here, with its own body and signature.
"""
