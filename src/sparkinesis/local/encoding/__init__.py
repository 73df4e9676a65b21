"""Requests and responses as bytes.

`requests` are the types; `codecs` read and write them in JSON and CBOR; `validation` checks them by
botocore's model, and tags by the service's rules.
"""
