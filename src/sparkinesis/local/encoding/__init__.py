"""Requests and responses as bytes: JSON, CBOR and event streams; request types and validation.

`requests` are the types, `codec` reads and writes them, in `cbor` too; `validation` checks them by
botocore's model, and tags by the service's rules. `event_stream` frames SubscribeToShard, `rpc_v2`
translates CloudWatch's protocol.
"""
