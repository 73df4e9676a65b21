"""The KPL's aggregated records: packing, unpacking, and the hash-range filter.

Reading: `magic` recognises an aggregate, `envelope` opens it; `unpack` makes columns by the
`headers` of many records and `joined_binary`, `objects` makes objects, for aggregates by
`packed_objects`. `hash_filter` drops records of other shards. Writing: `pack`, of `messages`.
"""
