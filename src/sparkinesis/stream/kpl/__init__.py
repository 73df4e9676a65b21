"""The KPL's aggregated records: packing, unpacking, and the hash-range filter.

Reading: `magic` recognises an aggregate, `envelope` opens it; `unpack` makes columns, by the `wire`
form of many user records at once, and `objects` makes objects. `hash_filter` drops records of other
shards. Writing: `pack`. `message_types` are protobuf's.
"""
